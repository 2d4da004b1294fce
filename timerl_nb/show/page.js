// Shows sections as tabs, filters operations, and links the nodes of a picture to their operations. Without this
// script, the page shows all sections one below the other.
(() => {
  const sections = [...document.querySelectorAll("section")];
  const links = [...document.querySelectorAll("nav a")];
  document.body.classList.add("tabs");
  const show = () => {
    const wanted = document.getElementById(location.hash.slice(1));
    const shown = (wanted && wanted.closest("section")) || sections[0];
    for (const one of sections) one.classList.toggle("shown", one === shown);
    for (const link of links) {
      if (link.hash === "#" + shown.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    if (wanted && wanted !== shown) wanted.scrollIntoView({ block: "center" });
    else scrollTo(0, 0);
  };
  addEventListener("hashchange", show);
  addEventListener("keydown", (event) => {
    const at = links.indexOf(document.activeElement);
    const to = at + (event.key === "ArrowRight") - (event.key === "ArrowLeft");
    if (at >= 0 && to !== at && links[to]) links[to].focus();
  });
  const asked = document.querySelector(".asks input");
  const rows = [...document.querySelectorAll("#operations tbody tr")];
  if (asked) asked.addEventListener("input", () => {
    const text = asked.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(text);
  });
  for (const node of document.querySelectorAll('.picture [id*="-op"]')) {
    const id = node.id.replace(/^.*-op/, "");
    const known = ["operation-", "kernel-"].find((kind) => document.getElementById(kind + id));
    if (!known) continue;
    node.classList.add("known");
    node.addEventListener("click", () => { location.hash = known + id; });
  }
  show();
})();
