// What is wider than the page is scrolled: by keys too, and with a name of its own.
addEventListener("load", () => {
  for (const box of document.querySelectorAll("pre > code, .formula, .md-typeset__scrollwrap")) box.tabIndex = 0;
  document.querySelectorAll(".md-code__nav").forEach((bar, i) => bar.setAttribute("aria-label", `Code ${i + 1}`));
});
