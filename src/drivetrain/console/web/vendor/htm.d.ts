// htm: templates for any function that makes nodes.
declare const htm: {
  bind<T>(
    h: (type: any, props: any, ...children: any[]) => T,
  ): (strings: TemplateStringsArray, ...values: unknown[]) => T;
};
export default htm;
