// @ts-check
// Lines of logs out of pieces of any size: the newest are kept, a piece that ends in the middle of a line waits.

/** @typedef {{number: number, process: string, text: string}} Line */

/** So many lines are kept, the newest. */
export const MOST_LINES = 20_000;
/** Of a longer line the beginning is kept. */
const LONGEST = 20_000;

export class LogLines {
  constructor() {
    /** @type {Line[]} */
    this.lines = [];
    this.dropped = 0;
    this.next = 0;
    /** @type {Map<string, string>} the unfinished line of each process */
    this.rest = new Map();
  }

  /**
   * Takes a piece of the log of a process.
   * @param {string} process
   * @param {string} text
   */
  take(process, text) {
    const parts = ((this.rest.get(process) ?? "") + text).split("\n");
    const unfinished = parts.pop() ?? "";
    this.rest.set(process, unfinished.slice(0, LONGEST + 1));
    for (const part of parts) {
      this.lines.push({ number: this.next, process, text: cut(part.endsWith("\r") ? part.slice(0, -1) : part) });
      this.next += 1;
    }
    const over = this.lines.length - MOST_LINES;
    if (over > 0) {
      this.lines.splice(0, over);
      this.dropped += over;
    }
  }

  /** The processes that wrote anything, by name. */
  processes() {
    return [...this.rest.keys()].sort();
  }

  /**
   * The lines of a process (all: "") that have a text in them, in any case.
   * @param {string} process
   * @param {string} text
   * @returns {Line[]} a new list
   */
  matching(process, text) {
    const wanted = text.toLowerCase();
    return this.lines.filter(
      (line) => (!process || line.process === process) && (!wanted || line.text.toLowerCase().includes(wanted)),
    );
  }
}

/** @param {string} line */
function cut(line) {
  return line.length > LONGEST ? `${line.slice(0, LONGEST)} … and ${line.length - LONGEST} more characters` : line;
}
