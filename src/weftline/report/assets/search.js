/* weft.search(element, data, onpick): finds ops by parts of their names.
   data = {names, kindOf(op), whereOf(op), aboutOf(op)}; onpick(op) when one is chosen. */
(function () {
  "use strict";
  const weft = window.weft;
  const MOST = 40;

  weft.search = (element, data, onpick) => {
    const number = document.querySelectorAll(".weft-search").length;
    const field = weft.make("input", { type: "search", id: `weft-search-${number}`, autocomplete: "off", spellcheck: "false", placeholder: "part of a name, or a kind such as MatMul" });
    const title = weft.make("label", { for: field.id }, "Find an op");
    const count = weft.make("p", { class: "soft small", role: "status" });
    const list = weft.make("ul", { class: "weft-found" });
    element.classList.add("weft-search");
    element.replaceChildren(weft.make("div", { class: "weft-field" }, title, field), count, list);
    let lower = null, timer = 0;

    function find() {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      list.replaceChildren();
      count.textContent = "";
      if (!words.length) return;
      lower = lower || data.names.map((name, op) => `${name} ${data.kindOf(op)}`.toLowerCase());
      const found = [];
      let total = 0;
      for (let op = 0; op < lower.length; op++) {
        if (!words.every((word) => lower[op].includes(word))) continue;
        total++;
        if (found.length < MOST) found.push(op);
      }
      count.textContent = total === 0 ? "no op has that in its name" : total > MOST ? `${total} ops, the first ${MOST}:` : `${total} op${total > 1 ? "s" : ""}:`;
      for (const op of found) {
        const made = weft.make("button", { type: "button", class: "weft-hit" }, weft.make("code", {}, data.names[op]), weft.make("span", { class: "soft small" }, `${data.kindOf(op)} on ${data.whereOf(op)}${data.aboutOf(op)}`));
        made.addEventListener("click", () => {
          for (const other of list.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
          made.setAttribute("aria-current", "true");
          onpick(op);
        });
        list.append(weft.make("li", {}, made));
      }
    }
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(find, 80);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") field.value = "";
      if (event.key === "Enter" || event.key === "Escape") find();
      if (event.key === "ArrowDown" && list.querySelector("button")) event.preventDefault(), list.querySelector("button").focus();
    });
  };
})();
