// What tools/audit.py asks of a page in the browser. `watch` runs before the page does.
const asked = {
  watch() {
    self.seen = { fcp: 0, lcp: 0, cls: 0 };
    const watch = (type, take) => new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true });
    watch("paint", (e) => e.name === "first-contentful-paint" && (seen.fcp = e.startTime));
    watch("largest-contentful-paint", (e) => (seen.lcp = e.startTime));
    watch("layout-shift", (e) => e.hadRecentInput || (seen.cls += e.value));
    document.write = () => { self.wrote = true; };
    const add = self.addEventListener;
    self.addEventListener = function (type, ...rest) {
      if (type === "unload") self.unloads = true;
      return add.call(this ?? self, type, ...rest);
    };
  },

  async practices() {
    const all = (s) => [...document.querySelectorAll(s)];
    const text = await (await fetch(location.href)).text();
    const inputs = all("input:not([type=file]):not([type=radio]):not([type=range])");
    const paste = () => new ClipboardEvent("paste", { cancelable: true, bubbles: true });
    const shape = (i) => !i.naturalWidth || Math.abs(i.clientWidth / i.clientHeight / (i.naturalWidth / i.naturalHeight) - 1) < 0.05;
    const own = (e) => new URL(e.name).origin === location.origin || /^(data|blob):/.test(e.name);
    return {
      doctype: document.doctype?.name === "html" && document.compatMode === "CSS1Compat",
      "charset in the first 1,024 bytes": /<meta charset="?utf-8/i.test(text.slice(0, 1024)),
      "no document.write": !self.wrote,
      "no unload listeners": !self.unloads,
      "a field takes a paste": inputs.length ? inputs.every((i) => i.dispatchEvent(paste())) : null,
      "pictures keep their shape": all("img").length ? all("img").every(shape) : null,
      "no foreign requests": performance.getEntriesByType("resource").every(own),
      "no plugins": !all("object, embed, applet").length,
    };
  },

  async search() {
    const all = (s) => [...document.querySelectorAll(s)];
    const said = (name) => document.querySelector(`meta[name=${name}]`)?.content ?? "";
    const vague = /^(click here|here|more|link|this|read more|learn more|start|go)$/i;
    const links = all("a[href]");
    const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let small = 0, read = 0;
    while (words.nextNode()) {
      const box = words.currentNode.parentElement, n = words.currentNode.textContent.trim().length;
      if (!n || !box.checkVisibility() || /SCRIPT|STYLE/.test(box.tagName)) continue;
      read += n;
      if (parseFloat(getComputedStyle(box).fontSize) < 12) small += n;
    }
    const canonical = document.querySelector("link[rel=canonical]")?.getAttribute("href");
    return {
      title: document.title.trim().length > 0,
      description: said("description").trim().length > 0,
      viewport: /width=device-width/.test(said("viewport")),
      language: /^[a-z]{2}/.test(document.documentElement.lang),
      "may be indexed": !/noindex/.test(said("robots")),
      "links can be followed": links.every((a) => !/^javascript:/.test(a.getAttribute("href"))),
      "links say where they lead": links.every((a) => !vague.test((a.textContent || a.title).trim())),
      "pictures have words": all("img").length ? all("img").every((i) => i.hasAttribute("alt")) : null,
      "canonical address": canonical == null ? null : /^https:/.test(canonical),
      "text of 12 px and more": small <= 0.4 * read,
      "no wider than a phone": document.documentElement.scrollWidth <= innerWidth,
      "status 200": (await fetch(location.href)).status === 200,
    };
  },

  async rules() {
    const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
    const found = await axe.run(document, { runOnly, resultTypes: ["violations", "passes"] });
    const named = (list, held) => Object.fromEntries(list.map((rule) => [rule.id, held]));
    return { ...named(found.passes, true), ...named(found.violations, false) };
  },
};
