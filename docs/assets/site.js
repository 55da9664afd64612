// What is wider than the page is scrolled: by keys too, and with a name of its own. The theme takes
// the keys' focus from a box that fits, and does not give it back when the window becomes narrower.
addEventListener("load", () => {
  const focus = (box) => box.hasAttribute("tabindex") || (box.tabIndex = 0);
  const kept = new MutationObserver((changes) => changes.forEach(({ target }) => focus(target)));
  for (const box of document.querySelectorAll("pre > code, .formula, .md-typeset__scrollwrap")) {
    focus(box);
    kept.observe(box, { attributeFilter: ["tabindex"] });
  }
  document.querySelectorAll(".md-code__nav").forEach((bar, i) => bar.setAttribute("aria-label", `Code ${i + 1}`));
});
