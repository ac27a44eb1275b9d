// Part of a browser's document that page.html uses: elements with attributes, children and listeners; markup is never parsed.

import vm from 'node:vm';

class Text {
  constructor(text) {
    this.textContent = text;
  }
}

class Element {
  constructor(tag, namespaceURI) {
    Object.assign(this, {tag, namespaceURI, attributes: {}, children: [], listeners: {}, parent: null});
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  append(...nodes) {
    for (const node of nodes) node.parent = this;
    this.children.push(...nodes);
  }
  replaceChildren(...nodes) {
    this.children = [];
    this.append(...nodes);
  }
  replaceWith(node) {
    this.parent.children[this.parent.children.indexOf(this)] = node;
    node.parent = this.parent;
  }
  addEventListener(type, listener) {
    this.listeners[type] = listener;
  }
  getBoundingClientRect() {
    return {left: 0, width: 640};  // that of the drawing: pixels are user units
  }
  get textContent() {
    return this.children.map(child => child.textContent).join('');
  }
  set innerHTML(markup) {
    throw new Error(`text of a run became markup: ${markup}`);
  }

  // For tests.
  get class() {
    return this.attributes.class ?? '';
  }
  // Elements inside with that tag and, if given, one of their classes, in the order of the page.
  all(tag, className) {
    return this.children.filter(child => child instanceof Element).flatMap(child => [
      ...(child.tag === tag && (!className || child.class.split(' ').includes(className)) ? [child] : []),
      ...child.all(tag, className)]);
  }
  texts(tag, className) {
    return this.all(tag, className).map(element => element.textContent);
  }
}

const svgNamespace = 'http://www.w3.org/2000/svg';

// Runs the script of a page; functions of the script are members of the result's `script`.
export function open(page) {
  const part = (before, after) => {
    const start = page.indexOf(before) + before.length;
    return page.slice(start, page.indexOf(after, start));
  };
  const data = new Element('script');
  data.append(new Text(part('<script type="application/json" id="data">', '</script>')));
  const byId = {data, page: new Element('main'), drawing: new Element('svg', svgNamespace)};
  const document = {
    title: '',
    getElementById: id => byId[id],
    createElement: tag => new Element(tag, 'html'),
    createElementNS: (namespace, tag) => new Element(tag, namespace),
    createTextNode: text => new Text(text),
  };
  const script = vm.createContext({document});
  vm.runInContext(part('<script>', '</script>'), script);
  const figure = title => byId.page.all('figure').find(one => one.texts('b')[0] === title);
  const section = id => byId.page.all('section').find(one => one.all('h2')[0].attributes.id === id);
  return {document, script, data: JSON.parse(data.textContent), page: byId.page, figure, section};
}
