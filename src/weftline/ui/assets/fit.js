/* The page of language models: names -> the answer, with memory of every card as a bar. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);
  const PARTS = [["compute", "weights"], ["send", "KV cache"], ["other", "buffers"]];
  const WIDTH = 1000, HEIGHT = 24;
  const names = (id) => by(id).value.split(",").map((word) => word.trim()).filter(Boolean);

  function bar(card, longest) {
    const scale = WIDTH / longest, whole = Math.min(WIDTH, card.limit * scale);
    const boxes = [weft.draw("rect", { class: "weft-lane", x: 0, y: 0, width: whole, height: HEIGHT, rx: 3 })];
    let x = 0;
    card.parts.forEach((size, part) => {
      const width = Math.max(0, Math.min(size * scale, whole - x));
      boxes.push(weft.draw("rect", { class: `weft-${PARTS[part][0]}`, x, y: 0, width, height: HEIGHT }));
      x += width;
    });
    const label = card.parts.map((size, part) => `${PARTS[part][1]} ${weft.bytes(size)}`).join(", ");
    return weft.draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", width: "100%", height: HEIGHT, role: "img", "aria-label": label }, ...boxes);
  }

  function table(head, rows) {
    const line = (cells, name) => weft.make("tr", {}, ...cells.map((cell) => weft.make(name, {}, cell)));
    const body = weft.make("tbody", {}, ...rows.map((cells) => line(cells, "td")));
    return weft.make("div", { class: "scroll" }, weft.make("table", {}, weft.make("thead", {}, line(head, "th")), body));
  }

  function show(found) {
    const cards = found.cards.filter((card) => !card.id.startsWith("cpu"));
    const longest = Math.max(1, ...(cards.length ? cards : found.cards).map((card) => card.limit));
    const used = (card) => card.parts.reduce((sum, size) => sum + size, 0);
    const rows = found.cards.map((card) => [`${card.id} ${card.name}`, card.layers, bar(card, longest), `${weft.bytes(used(card))} of ${weft.bytes(card.limit)}`]);
    const legend = weft.make("ul", { class: "legend" }, ...PARTS.map(([tone, text]) => weft.make("li", {}, weft.make("span", { class: `key ${tone}` }), text)));
    const others = found.others.map(([name, rate]) => [name, rate === null ? "does not fit" : rate]);
    const copy = weft.make("button", { type: "button" }, "Copy");
    copy.addEventListener("click", () => navigator.clipboard.writeText(found.commands.join("\n")).then(() => weft.say("copied"), () => weft.say("The browser does not allow it.", true)));
    const parts = [
      weft.make("h2", {}, `${found.rate} tokens per second`),
      ...(found.advice ? [weft.make("p", {}, weft.make("strong", {}, found.advice))] : []),
      ...found.lines.map((line) => weft.make("p", { class: "soft" }, line)),
      table(["device", "layers", "memory", ""], rows),
      legend,
      ...found.moved.map((line) => weft.make("p", {}, line)),
      table(["simpler plans", "tokens per second"], [["this plan", found.rate], ...others]),
      weft.make("h3", {}, "Start it"),
      ...found.commands.map((line) => weft.make("p", {}, weft.make("code", {}, line))),
      copy,
      weft.make("ul", { class: "soft small" }, ...found.notes.map((note) => weft.make("li", {}, note))),
    ];
    by("cards-answer").replaceChildren(...parts);
    by("cards-answer").hidden = false;
    by("cards-welcome").hidden = true;
  }

  function tell(text) {
    by("cards-error").textContent = text;
    by("cards-error").hidden = !text;
  }

  by("cards-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const go = by("cards-go");
    go.disabled = true;
    tell("");
    try {
      const question = {
        model: by("llm").value.trim(), gpus: names("gpus"), cpus: names("cpus"), links: names("links"), ram: by("ram").value.trim(),
        quantisation: by("quant").value.trim(), context: by("context").value.trim(), concurrency: Number(by("concurrency").value) || 1,
        engine: by("engine").value, want: by("want").value.trim(),
      };
      const found = await weft.ask("POST", "/api/fit", question);
      if (found.error) tell(found.error);
      else show(found);
    } catch (error) {
      tell(error.message);
    } finally {
      go.disabled = false;
    }
  });

  weft.ask("GET", "/api/choices").then((choices) => {
    const lists = { "known-llms": choices.llms, "known-quants": ["best", ...choices.quantisations], "known-gpus": choices.devices.gpu, "known-cpus": choices.devices.cpu };
    for (const [id, words] of Object.entries(lists)) by(id).append(...words.map((word) => weft.option(word, word)));
    document.documentElement.dataset.ready = "yes";
  }, (error) => weft.say(error.message, true));
})();
