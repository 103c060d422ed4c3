// @ts-check
// Tables: sorted by any column, rows kept by their key, so that a live table never jumps under one's hand.

import { html, useMemo, useState } from "../lib/dom.js";

/**
 * @template R
 * @typedef {{label: string, cell: (row: R) => unknown, by?: (row: R) => string | number | null | undefined,
 *   number?: boolean, heads?: boolean, class?: string | ((row: R) => string), title?: string}} Column
 * A column: `by` is what it is sorted by, `heads` marks the one that names the row.
 */

/**
 * @template R
 * @param {{label: string, columns: (Column<R> | null | false)[], rows: R[], id: (row: R) => string, most?: number}} props
 */
export function Table({ label, columns: given, rows, id, most = 1000 }) {
  const columns = /** @type {Column<R>[]} */ (given.filter(Boolean));
  const [sort, setSort] = useState(/** @type {{label: string, down: boolean} | null} */ (null));
  const column = sort && columns.find((one) => one.label === sort.label);
  const sorted = useMemo(() => (column?.by ? ordered(rows, column.by, sort?.down ?? false) : rows), [rows, sort]);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          ${columns.map((one) => html`<${Heading} key=${one.label} of=${one} sort=${sort} onSort=${setSort} />`)}
        </tr>
      </thead>
      <tbody>
        ${sorted.slice(0, most).map((row) => html`<tr key=${id(row)}>${columns.map((one) => cell(one, row))}</tr>`)}
      </tbody>
    </table>
    ${sorted.length > most ? html`<p class="empty">${sorted.length - most} more are not shown; filter for them.</p>` : null}
  </div>`;
}

/**
 * @param {Column<any>} column
 * @param {any} row
 */
function cell(column, row) {
  const given = typeof column.class === "function" ? column.class(row) : (column.class ?? "");
  const classes = `${column.number ? "number " : ""}${given}`.trim() || undefined;
  return column.heads
    ? html`<th scope="row" class=${classes}>${column.cell(row)}</th>`
    : html`<td class=${classes}>${column.cell(row)}</td>`;
}

/** @param {{of: Column<any>, sort: {label: string, down: boolean} | null, onSort: (next: any) => void}} props */
function Heading({ of, sort, onSort }) {
  const mine = sort?.label === of.label;
  const turn = () => {
    const first = of.number ?? false; // the largest first, for numbers
    onSort(!mine ? { label: of.label, down: first } : sort.down === first ? { label: of.label, down: !first } : null);
  };
  return html`<th
    scope="col"
    title=${of.title}
    class=${of.number ? "number" : undefined}
    aria-sort=${mine ? (sort.down ? "descending" : "ascending") : undefined}
  >
    ${of.by ? html`<button class="sort" type="button" onClick=${turn}>${of.label}</button>` : of.label}
  </th>`;
}

/**
 * @template R
 * @param {R[]} rows @param {(row: R) => string | number | null | undefined} by @param {boolean} down
 */
function ordered(rows, by, down) {
  const turn = down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [by(one), by(other)];
    if (a == null || b == null) return Number(a == null) - Number(b == null); // what is not known comes last
    return (a < b ? -1 : a > b ? 1 : 0) * turn;
  });
}
