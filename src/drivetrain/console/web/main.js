// @ts-check
// The dashboard: what the address names is shown, what the server sends is kept, one stream brings it.

import { html, render, useEffect, useRef, useState } from "./lib/dom.js";
import { useKeys } from "./lib/keys.js";
import { followTheAddress } from "./lib/follow.js";
import { live } from "./lib/live.js";
import { askSession, isSignedIn, may, session, signOut } from "./lib/session.js";
import { link, route } from "./lib/router.js";
import { pause_ms } from "./lib/sse.js";
import * as store from "./lib/store.js";
import { Said, visible } from "./lib/text.js";
import { SignInPage } from "./pages/sign_in.js";
import { ApplicationsPage } from "./pages/applications.js";
import { ClusterPage } from "./pages/cluster.js";
import { PAGES } from "./pages/pages.js";
import { SubmitPage } from "./pages/submit.js";
import { Actions, Outcome } from "./parts/actions.js";
import { Badge } from "./parts/badge.js";
import { Banner, Bar, Side } from "./parts/bar.js";
import { Help } from "./parts/help.js";
import { Empty, Panel } from "./parts/panel.js";
import { ProblemBox } from "./parts/problem.js";

/** @typedef {import("./parts/bar.js").Place} Place */

followTheAddress();

// -- what is shown -------------------------------------------------------------------------------------

function Dashboard() {
  const { path } = route.value;
  const [helping, setHelping] = useState(false);
  const top = topPlaces(path[0] ?? "");
  const app = path[0] === "apps" && path[1] ? path[1] : null;
  const side = app ? sidePlaces(app, path[2] ?? "") : [];
  useKeys({ places: [...top, ...side], onHelp: () => setHelping(true) });
  useFocusOnPage(path.join("/"));
  if (!isSignedIn.value) return html`<${SignedOut} />`;
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <${Bar} places=${top} onHelp=${() => setHelping(true)} user=${html`<${User} />`} />
    <${Banner} />
    <div class="body ${app ? "" : "plain"}">
      ${app ? html`<${Side} places=${side} label="Application" />` : null}
      <main id="content" tabindex="-1">${app ? html`<${OfApplication} app=${app} page=${path[2] ?? ""} />` : html`<${TopPage} first=${path[0] ?? ""} />`}</main>
    </div>
    ${helping ? html`<${Help} places=${[...top, ...side]} onClose=${() => setHelping(false)} />` : null}
  `;
}

/** Before one is known, and for whom the server does not know. */
function SignedOut() {
  return html`
    <${Bar} places=${[]} />
    <div class="body plain">
      <main id="content" tabindex="-1">
        ${session.value ? html`<${SignInPage} />` : html`<${Panel} title="Drivetrain"><${Empty}>Waiting for the console …<//><//>`}
      </main>
    </div>
  `;
}

/** Who is signed in, where there is anything to sign out of. */
function User() {
  const now = session.value;
  if (!now?.takes_passwords || now.means !== "session") return null;
  return html`<span class="user"><${Said} of=${now.name} class="name" /> (${now.role})</span>
    <button class="action" type="button" onClick=${signOut}>Sign out</button>`;
}

/**
 * @param {string} first
 * @returns {Place[]}
 */
function topPlaces(first) {
  const ofRuns = store.isOfRuns.value;
  return [
    { label: "Applications", href: link([]), current: first === "" || first === "apps", key: "l" },
    ...(ofRuns ? [] : [{ label: "Cluster", href: link(["cluster"]), current: first === "cluster", key: "w" }]),
    ...(may("user") && !ofRuns ? [{ label: "Submit", href: link(["submit"]), current: first === "submit", key: "s" }] : []),
  ];
}

/**
 * @param {string} app
 * @param {string} at
 * @returns {Place[]}
 */
function sidePlaces(app, at) {
  return PAGES.filter((one) => one.isThere?.() ?? true).map((one) => ({
    label: one.label,
    href: link(["apps", app, ...(one.id ? [one.id] : [])]),
    current: one.id === at,
    key: one.key,
    count: one.count?.(),
    bad: one.bad?.(),
  }));
}

/** @param {{first: string}} props */
function TopPage({ first }) {
  if (first === "") return html`<${ApplicationsPage} />`;
  if (first === "cluster") return html`<${ClusterPage} />`;
  if (first === "submit" && may("user")) return html`<${SubmitPage} />`;
  return html`<${Panel} title="No such page"><${Empty}>There is nothing at this address. <a href=${link([])}>See all applications.</a><//><//>`;
}

/** @param {{app: string, page: string}} props */
function OfApplication({ app, page }) {
  const now = store.snapshot.value;
  if (store.isGone.value) {
    return html`<${Panel} title="No such application"><${Empty}>There is no application <${Said} of=${app} />: it was removed, or never started. <a href=${link([])}>See all applications.</a><//><//>`;
  }
  if (!now) {
    const problem = live.problem.value;
    return html`<${Panel} title="Application">${problem ? html`<${ProblemBox} of=${problem} />` : html`<${Empty}>Waiting for the console …<//>`}<//>`;
  }
  const found = PAGES.find((one) => one.id === page);
  const job = store.job.value;
  const isThere = found && (found.isThere?.() ?? true);
  return html`
    <div class="head">
      <h1><${Said} of=${now.application.app_id} /></h1>
      <${Badge} of=${now.application.state === "active" && job ? job.state : now.application.state} />
      <${Actions} app=${now.application.app_id} />
    </div>
    <${Outcome} />
    ${
      isThere
        ? html`<${found.page} />`
        : html`<${Panel} title=${found?.label ?? "No such page"}><${Empty}>${found ? "There is nothing to show here yet." : "There is nothing at this address."}<//><//>`
    }
  `;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault(); // the address after "#" is the page
  document.getElementById("content")?.focus();
}

/**
 * A new page begins at its top, and screen readers begin there.
 * @param {string} place
 */
function useFocusOnPage(place) {
  const before = useRef(place);
  useEffect(() => {
    document.title = titleOf(place);
    if (before.current === place) return;
    before.current = place;
    scrollTo(0, 0);
    document.getElementById("content")?.focus({ preventScroll: true });
  }, [place]);
}

/** @param {string} place */
function titleOf(place) {
  const [first = "", app, page = ""] = place.split("/");
  if (first === "apps" && app)
    return `${visible(app)} · ${PAGES.find((one) => one.id === page)?.label ?? "Application"} · Drivetrain`;
  return `${{ cluster: "Cluster", submit: "Submit" }[first] ?? "Applications"} · Drivetrain`;
}

/** Asks who is here until the console answers. */
async function begin() {
  for (let tries = 1; ; tries += 1) {
    try {
      await askSession();
      return;
    } catch {
      await new Promise((done) => setTimeout(done, pause_ms(tries)));
    }
  }
}

const place = /** @type {HTMLElement} */ (document.getElementById("dashboard"));
place.replaceChildren();
render(html`<${Dashboard} />`, place);
void begin();
