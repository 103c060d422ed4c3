// The part of Preact's types that the dashboard needs.
export type VNode = { type: unknown; props: Record<string, unknown>; key: unknown };
export type Child = VNode | string | number | boolean | null | undefined | Child[];
export function h(type: unknown, props: object | null, ...children: Child[]): VNode;
export function render(node: Child, parent: Element): void;
export const Fragment: (props: { children?: Child }) => VNode;
export class Component<P = {}, S = {}> {
  props: P;
  state: S;
  setState(change: Partial<S>): void;
}
