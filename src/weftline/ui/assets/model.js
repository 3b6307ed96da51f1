/* weft.models(choices): the model that is planned, an upload or one of the zoo. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);

  weft.models = (choices) => {
    const select = by("model"), size = by("size"), note = by("model-note"), drop = by("drop"), file = by("file");
    const zoo = new Map(choices.zoo.map(([name, text, sizes]) => [name, { text, sizes }]));
    const uploads = weft.make("optgroup", { label: "Your files" });
    const built = weft.make("optgroup", { label: "Zoo" }, ...[...zoo.keys()].map((name) => weft.option("zoo:" + name, name)));
    select.append(built);
    select.addEventListener("change", show);
    size.addEventListener("change", show);

    function show() {
      const name = select.value.startsWith("zoo:") ? select.value.slice(4) : null;
      by("size-box").hidden = !name;
      if (!name) {
        note.textContent = "";
        return;
      }
      const entry = zoo.get(name);
      if (size.dataset.of !== name) {
        size.replaceChildren(...entry.sizes.map((word) => weft.option(word, word)));
        size.dataset.of = name;
      }
      note.textContent = entry.text + (size.value === "small" ? " (this size: for tests)" : "; built without weights, which planning does not need");
    }

    function upload(chosen) {
      if (!chosen) return;
      if (chosen.size > choices.limits.upload_bytes) {
        weft.say(`${chosen.name} is larger than ${weft.bytes(choices.limits.upload_bytes)}. Keep weights as external data: planning does not need them.`, true);
        return;
      }
      const request = new XMLHttpRequest(), bar = by("sent");
      request.open("POST", "/api/models");
      request.setRequestHeader("content-type", "application/octet-stream");
      request.setRequestHeader("x-file-name", encodeURIComponent(chosen.name));
      request.upload.addEventListener("progress", (event) => (bar.value = event.loaded / (event.total || 1)));
      bar.value = 0;
      bar.hidden = false;
      request.addEventListener("loadend", () => {
        bar.hidden = true;
        file.value = "";
        try {
          const got = weft.read(request.status, request.responseText);
          add(got);
          select.value = String(got.id);
          show();
        } catch (error) {
          weft.say(`${chosen.name}: ${error.message}`, true);
        }
      });
      request.send(chosen);
    }

    function add(model) {
      if ([...uploads.children].some((option) => option.value === String(model.id))) return;
      uploads.append(weft.option(String(model.id), model.label));
      if (!uploads.isConnected) select.prepend(uploads);
    }

    file.addEventListener("change", () => upload(file.files[0]));
    for (const kind of ["dragenter", "dragover"]) {
      window.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.add("over");
      });
    }
    window.addEventListener("dragleave", (event) => event.relatedTarget || drop.classList.remove("over"));
    window.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      upload(event.dataTransfer.files[0]);
    });
    select.value = "zoo:bert";
    show();

    return {
      known: (models) => models.forEach(add),
      /* What depends on the fields, after they were set. */
      refresh: (wanted) => {
        show();
        if (wanted && [...size.options].some((option) => option.value === wanted)) size.value = wanted;
        show();
      },
      asked: () => (select.value.startsWith("zoo:") ? { zoo: select.value.slice(4), size: size.value } : { model: Number(select.value) }),
    };
  };
})();
