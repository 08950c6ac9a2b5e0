// What the theme leaves out for people who use a keyboard or a screen reader.
const mend = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((e, i) => e.setAttribute("aria-label", `Code ${i + 1}`));
  for (const e of document.querySelectorAll(".md-typeset pre, .md-typeset pre > code, .md-typeset table, .md-typeset__table, .md-typeset__scrollwrap"))
    if (e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== "visible") e.tabIndex = 0;
};
mend();
addEventListener("resize", mend);
new MutationObserver(mend).observe(document.body, {childList: true, subtree: true});
