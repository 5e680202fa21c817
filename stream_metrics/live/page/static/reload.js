// Shows the current content of a page at intervals; the reader's place and selection stay.

const again = () => setTimeout(load, 1000 * Number(document.body.dataset.reloadSeconds));

function load() {
  if (document.hidden) {
    again();
    return;
  }
  const request = new XMLHttpRequest(); // its documents come without a script that runs
  request.responseType = "document";
  request.addEventListener("load", () => request.status === 200 && show(request.responseXML));
  request.addEventListener("loadend", again);
  request.open("GET", location.href);
  request.send();
}

function show(loaded) {
  for (const name of [".pill", "main", "footer"]) {
    const [old, made] = [document, loaded].map((from) => from.querySelector(name));
    if (!old.isEqualNode(made)) old.replaceWith(made);
  }
}

again();
