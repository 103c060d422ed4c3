// The part of the types of Preact's hooks that the dashboard needs.
export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useCallback<T extends (...given: any[]) => unknown>(call: T, inputs: readonly unknown[]): T;
export function useRef<T>(first: T): { current: T };
export function useRef<T>(first: null): { current: T | null };
