// PdgView: draws the SVG that Python laid out, and lets one select its nodes by mouse or keyboard.
// The SVG is parsed as XML and stripped of everything that could run; names stay text.

const FORBIDDEN = "script, foreignObject, iframe, object, embed, use, animate, set";

function parse(markup) {
  const svg = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement;
  svg.querySelectorAll(FORBIDDEN).forEach((element) => element.remove());
  for (const element of [svg, ...svg.querySelectorAll("*")]) {
    for (const { name, value } of [...element.attributes]) {
      if (/^on/i.test(name) || /^\s*javascript:/i.test(value)) element.removeAttribute(name);
    }
  }
  return document.importNode(svg, true);
}

class View {
  constructor(model, root) {
    this.model = model;
    this.root = root;
    this.status = document.createElement("div");
    this.status.className = "trl-status";
    this.status.setAttribute("aria-live", "polite");
  }

  draw() {
    this.svg = parse(this.model.get("svg"));
    const { x, y, width, height } = this.svg.viewBox.baseVal;
    this.home = [x, y, width, height];
    this.svg.removeAttribute("width");
    this.svg.removeAttribute("height");
    this.svg.setAttribute("role", "group");
    this.svg.setAttribute("aria-label", "dependence graph");
    this.show(this.home);

    const graph = this.model.get("view");
    this.details = new Map(graph.nodes.map((node) => [node.id, node]));
    this.near = new Map(graph.nodes.map((node) => [node.id, new Set()]));
    for (const { tail, head } of graph.edges) {
      this.near.get(tail)?.add(head);
      this.near.get(head)?.add(tail);
    }
    this.nodes = new Map();
    for (const element of this.svg.querySelectorAll("g.node")) {
      if (!this.details.has(element.id)) continue;
      this.nodes.set(element.id, element);
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", "-1");
      element.setAttribute("aria-label", this.details.get(element.id).label.replaceAll("\n", ", "));
    }
    this.edges = [...this.svg.querySelectorAll("g.edge")].map((element) => {
      const [tail, head] = (element.querySelector("title")?.textContent ?? "").split("->");
      return { element, tail, head };
    });
    this.svg.querySelectorAll("title").forEach((title) => title.remove());
    this.order = [...this.nodes.keys()];
    this.nodes.get(this.order[0])?.setAttribute("tabindex", "0");
    this.root.replaceChildren(this.svg, this.status);
    this.root.style.height = `${this.model.get("height")}px`;
    this.listen();
    this.mark();
  }

  show(box) {
    this.box = box;
    this.svg.setAttribute("viewBox", box.join(" "));
  }

  zoom(factor, cx = this.box[0] + this.box[2] / 2, cy = this.box[1] + this.box[3] / 2) {
    const [x, y, w, h] = this.box;
    this.show([cx - (cx - x) * factor, cy - (cy - y) * factor, w * factor, h * factor]);
  }

  listen() {
    const nodeOf = (event) => {
      const element = event.target.closest("g.node");
      return element && this.nodes.has(element.id) ? element.id : null;
    };
    let from = null;
    let dragged = false;
    this.svg.addEventListener("pointerdown", (event) => {
      from = [event.clientX, event.clientY, ...this.box];
      dragged = false;
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
      dragged ||= Math.hypot(dx, dy) > 4;
      if (!dragged) return;
      const scale = this.box[2] / this.svg.clientWidth;
      this.show([from[2] - dx * scale, from[3] - dy * scale, from[4], from[5]]);
    });
    this.svg.addEventListener("pointerup", () => (from = null));
    this.svg.addEventListener("click", (event) => {
      const id = nodeOf(event);
      if (id && !dragged) this.select(id, event.shiftKey || event.ctrlKey || event.metaKey);
    });
    this.svg.addEventListener("pointerover", (event) => this.light(nodeOf(event)));
    this.svg.addEventListener("pointerleave", () => this.light(null));
    this.svg.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
        event.preventDefault();
        const area = this.svg.getBoundingClientRect();
        const [x, y, w, h] = this.box;
        const cx = x + ((event.clientX - area.left) / area.width) * w;
        const cy = y + ((event.clientY - area.top) / area.height) * h;
        this.zoom(Math.exp(event.deltaY / 500), cx, cy);
      },
      { passive: false },
    );
    this.svg.addEventListener("keydown", (event) => this.key(event, nodeOf(event)));
  }

  key(event, id) {
    const act = {
      Enter: () => id && this.select(id, event.shiftKey),
      " ": () => id && this.select(id, event.shiftKey),
      ArrowRight: () => this.step(id, 1),
      ArrowDown: () => this.step(id, 1),
      ArrowLeft: () => this.step(id, -1),
      ArrowUp: () => this.step(id, -1),
      "+": () => this.zoom(0.8),
      "=": () => this.zoom(0.8),
      "-": () => this.zoom(1.25),
      0: () => this.show(this.home),
      Escape: () => this.choose([]),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own meaning for these keys
    act();
  }

  step(id, by) {
    const at = this.order.indexOf(id);
    const next = this.order[(at + by + this.order.length) % this.order.length];
    for (const [key, element] of this.nodes) element.setAttribute("tabindex", key === next ? "0" : "-1");
    this.nodes.get(next).focus();
    this.light(next);
  }

  select(id, more) {
    const now = this.model.get("selected");
    if (more) this.choose(now.includes(id) ? now.filter((key) => key !== id) : [...now, id]);
    else this.choose(now.length === 1 && now[0] === id ? [] : [id]);
  }

  choose(ids) {
    this.model.set("selected", ids);
    this.model.save_changes();
    this.mark();
  }

  mark() {
    const chosen = new Set(this.model.get("selected"));
    for (const [id, element] of this.nodes) {
      element.classList.toggle("trl-selected", chosen.has(id));
      element.setAttribute("aria-pressed", String(chosen.has(id)));
    }
    const shown = [...chosen].map((id) => this.details.get(id)).filter(Boolean);
    this.status.textContent = shown.length
      ? shown.map((node) => `${node.label.split("\n")[0]} — ${node.detail}`).join("; ")
      : "click a node; arrow keys move, Enter selects, + − 0 zoom";
  }

  light(id) {
    const keep = id ? new Set([id, ...this.near.get(id)]) : null;
    for (const [key, element] of this.nodes) {
      element.classList.toggle("trl-dim", keep !== null && !keep.has(key));
    }
    for (const { element, tail, head } of this.edges) {
      element.classList.toggle("trl-dim", id !== null && tail !== id && head !== id);
    }
  }
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "trl-pdg";
  el.append(root);
  const view = new View(model, root);
  const redraw = () => view.draw();
  const remark = () => view.mark();
  redraw();
  model.on("change:svg", redraw);
  model.on("change:selected", remark);
  return () => {
    model.off("change:svg", redraw);
    model.off("change:selected", remark);
  };
}

export default { render };
