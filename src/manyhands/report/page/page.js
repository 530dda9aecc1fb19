// Draws the figures in the colours of the page, switches between the tabs of a panel, and sorts tables.
"use strict";
(() => {
  const panels = JSON.parse(document.getElementById("figures").textContent);
  const touch = matchMedia("(pointer: coarse)").matches;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = 640; // pixels of width when printed
  let printing = false;

  /** A copy in which colours that are named (@ink, @c1) are those that the style sheet has now. */
  function coloured(value, key = "") {
    if (Array.isArray(value)) return value.map((each) => coloured(each, key));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, name)]));
    }
    return key.endsWith("color") && value[0] === "@" ? property(value.slice(1)) : value;
  }

  function property(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function draw(box) {
    const figure = panels[box.dataset.panel][box.dataset.tab];
    const layout = coloured({
      ...figure.layout,
      ...(printing ? { width: paper } : { autosize: true }),
      uirevision: box.dataset.tab, // zoom and legend outlive a change of colours, not one of the tab
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "@ink" },
      hoverlabel: { bgcolor: "@card", bordercolor: "@line", font: { color: "@ink" }, align: "left" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "@soft", activecolor: "@accent", orientation: "v" },
      // A finger that moves over a plot scrolls the page, unless the plot is there to be looked at closely.
      dragmode: touch ? (figure.zoom ? "pan" : false) : "zoom",
    });
    const config = {
      responsive: true,
      displaylogo: false,
      showSendToCloud: false, // Plotly's own host is no place for anybody's runs
      plotlyServerURL: "",
      displayModeBar: touch ? false : figure.zoom ? true : "hover",
      scrollZoom: touch && figure.zoom, // by two fingers
      modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"], ["zoom2d", "pan2d"], ["toImage"]],
      toImageButtonOptions: { filename: figure.name, scale: 2 },
    };
    return Plotly.react(box.querySelector(".plot"), coloured(figure.data), layout, config);
  }

  function drawAll() {
    document.querySelectorAll("[data-panel]").forEach(draw);
  }

  document.querySelectorAll("[data-panel]").forEach((box) => {
    const buttons = [...box.querySelectorAll(".tabs button")];
    buttons.forEach((button, tab) => button.addEventListener("click", () => {
      buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
      box.dataset.tab = tab;
      draw(box);
    }));
  });

  /** What a cell is sorted by: its number without separators and deviation, or its words. */
  function sortKey(row, column) {
    const words = row.cells[column].textContent.trim();
    const number = parseFloat(words.replaceAll(",", ""));
    return row.cells[column].classList.contains("number") ? (Number.isNaN(number) ? -Infinity : number) : words;
  }

  document.querySelectorAll("table").forEach((table) => {
    const body = table.tBodies[0];
    if (!table.tHead || body.rows.length < 3) return;
    const heads = [...table.tHead.rows[0].cells];
    heads.filter((head) => head.textContent).forEach((head) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const column = heads.indexOf(head);
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const order = (one, two) => (one > two ? 1 : one < two ? -1 : 0) * (down ? -1 : 1);
        body.append(...[...body.rows].sort((one, two) => order(sortKey(one, column), sortKey(two, column))));
      });
    });
  });

  function print(on) {
    printing = on;
    document.documentElement.classList.toggle("printing", on);
    drawAll();
  }

  dark.addEventListener("change", drawAll);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  document.documentElement.classList.remove("scriptless");
  drawAll();
})();
