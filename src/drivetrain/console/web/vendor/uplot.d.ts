// The part of uPlot's types that the dashboard needs.
export type Data = (number | null | undefined)[][];
export default class uPlot {
  constructor(options: Record<string, unknown>, data: Data, parent: Element);
  setData(data: Data): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
  readonly root: HTMLElement;
}
