// @ts-check
// Signing in: with a name and a password, or by the address that `drivetrain console` prints.

import { html, useState } from "../lib/dom.js";
import { session, signIn } from "../lib/session.js";
import { Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";

export function SignInPage() {
  return html`
    <h1>Sign in</h1>
    <${Panel} title="Sign in" inside>
      ${
        session.value?.takes_passwords
          ? html`<${Form} />`
          : html`<p>Open the address that <code>drivetrain console</code> printed when it started: it signs this browser in.</p>
            <p class="note">Each start of the console makes the earlier addresses invalid.</p>`
      }
    <//>
  `;
}

function Form() {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(name, password);
    } catch (error) {
      setProblem(error);
      setPassword("");
    } finally {
      setBusy(false);
    }
  };
  return html`<form class="stack" onSubmit=${submit}>
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    <label class="field stacked">
      Name
      <input name="name" autocomplete="username" required value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
    </label>
    <label class="field stacked">
      Password
      <input name="password" type="password" autocomplete="current-password" required value=${password} onInput=${(/** @type {any} */ event) => setPassword(event.target.value)} />
    </label>
    <p><button class="action first" type="submit" disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button></p>
  </form>`;
}
