// An extension of JupyterLab: shows the saved picture of a widget whose model is gone, and opens explorers beside
// their notebook.
//
// A saved notebook contains a picture of each widget. Without a kernel, JupyterLab shows an error in place of the
// widget, and this extension replaces the error by the picture. The file is a module-federation container, written by
// hand because it needs a single token of JupyterLab and no bundler.
"use strict";
(() => {
  const ERROR = "Error displaying widget: model not found"; // of @jupyter-widgets/jupyterlab-manager
  const SVG = "image/svg+xml";
  const NOTE = "The saved picture of this view. Run the cell for a new one.";
  // Pictures are images, which do not see the theme of the page around them.
  const STYLE = `
    .timerl-saved, .jp-RenderedSVG img { max-width: 100%; color-scheme: only light; }
    [data-jp-theme-light="false"] :is(.timerl-saved, .jp-RenderedSVG img) { color-scheme: dark; }
    .timerl-note { color: var(--jp-ui-font-color2); font-size: var(--jp-ui-font-size1); }`;
  let scope = {};

  /** Load a module that JupyterLab shares. */
  async function shared(name) {
    const versions = Object.values(scope[name] ?? {});
    const loaded = versions.find((version) => version.loaded) ?? versions[0];
    return (await loaded.get())();
  }

  /** The data of the output of a notebook that an element is part of. */
  function dataOf(notebook, element) {
    for (const cell of notebook.widgets) {
      const area = cell.outputArea;
      if (!area || !area.node.contains(element)) continue;
      const k = area.widgets.findIndex((output) => output.node.contains(element));
      return k < 0 ? {} : (area.model.get(k)?.data ?? {});
    }
    return {};
  }

  function show(notebook, text) {
    const host = text.parentElement;
    const saved = host && dataOf(notebook, host)[SVG];
    if (!saved) return;
    const picture = Array.isArray(saved) ? saved.join("") : saved;
    const image = document.createElement("img");
    image.className = "timerl-saved";
    image.alt = NOTE;
    image.src = `data:${SVG};charset=utf-8,${encodeURIComponent(picture)}`;
    const note = document.createElement("div");
    note.className = "timerl-note";
    note.textContent = NOTE;
    const both = document.createElement("div");
    both.append(image, note);
    host.replaceChildren(both);
  }

  /** Watch for errors in place of widgets, until the notebook is closed. */
  function watch(panel) {
    const notebook = panel.content;
    const isError = (node) => node.nodeType === Node.TEXT_NODE && node.data === ERROR;
    const observer = new MutationObserver((records) => {
      for (const { addedNodes } of records) {
        for (const node of addedNodes) {
          if (isError(node)) show(notebook, node);
          // an output may come as a whole, with the error inside
          else if (node.textContent?.includes(ERROR)) within(node);
        }
      }
    });
    const within = (root) => {
      const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
      const found = [];
      while (texts.nextNode()) if (isError(texts.currentNode)) found.push(texts.currentNode);
      found.forEach((text) => show(notebook, text));
    };
    within(notebook.node);
    observer.observe(notebook.node, { childList: true, subtree: true });
    panel.disposed.connect(() => observer.disconnect());
  }

  /** Open the output of a cell a second time, beside the notebook, when the explorer in it asks. */
  function offerBeside(app, tracker) {
    const command = "notebook:create-output-view";
    if (!app.commands.hasCommand(command)) return;
    document.body.dataset.timerlBeside = "";
    document.addEventListener("timerl-beside", ({ target }) => {
      const panel = tracker.find(({ node }) => node.contains(target));
      const at = panel?.content.widgets.findIndex(({ node }) => node.contains(target)) ?? -1;
      if (at < 0) return;
      app.shell.activateById(panel.id);
      panel.content.activeCellIndex = at;
      app.commands.execute(command);
    });
  }

  /** Open pages of the documentation, if the server's folder is a checkout of the project. */
  async function offerPages(app) {
    // listed folder by folder, since a request for a missing one would leave an error in the console
    for (const [folder, entry] of [
      ["", "timerl_nb"],
      ["", "docs"],
      ["docs", "passes"],
    ]) {
      const { content } = await app.serviceManager.contents.get(folder);
      if (!content.some(({ name, type }) => name === entry && type === "directory")) return;
    }
    document.body.dataset.timerlPages = "";
    document.addEventListener("timerl-page", ({ detail }) => {
      if (!/^docs\/passes\/\w+\.md$/.test(detail?.path)) return;
      const page = {
        path: detail.path,
        factory: "Markdown Preview",
        options: { mode: "split-right" },
      };
      app.commands.execute("docmanager:open", page);
    });
  }

  async function extension() {
    const { INotebookTracker } = await shared("@jupyterlab/notebook");
    const plugin = {
      id: "timerl-nb:notebooks",
      autoStart: true,
      requires: [INotebookTracker],
      activate: (app, tracker) => {
        const style = document.createElement("style");
        style.textContent = STYLE;
        document.head.append(style);
        void app.restored.then(() => offerBeside(app, tracker));
        void offerPages(app);
        tracker.forEach(watch);
        tracker.widgetAdded.connect((_, panel) => watch(panel));
      },
    };
    return () => ({ __esModule: true, default: plugin });
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["timerl-nb"] = {
    init: (shareScope) => void (scope = shareScope),
    get: () => extension(),
  };
})();
