"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { displayModeBar: false, responsive: true, displaylogo: false, scrollZoom: false, doubleClick: false };
  const colours = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#868E99", "#A67C00"];
  const shapes = ["circle", "diamond", "square", "triangle-up", "cross", "x", "star"];
  const shapes3d = ["circle", "diamond", "square", "circle-open", "diamond-open", "square-open", "circle"];
  // A value that names a colour is drawn in it; its shape tells it apart for everyone.
  const hues = { red: "#C8312B", blue: "#2F6FD6", green: "#2E9A4A", yellow: "#D1AD00", purple: "#8A4FC7", orange: "#E8871E", pink: "#E583B5", brown: "#8A5A33", gray: "#868E99", grey: "#868E99", cyan: "#27B5C4", black: "#50555E", white: "#B9BDC4", silver: "#A9B0BA", gold: "#B8901A", teal: "#1C8A87", navy: "#30478F", magenta: "#C2409B" };
  const kinds = {
    concept: { label: "a value", colour: "#868E99", shape: "circle" },
    object: { label: "an object", colour: "#009E73", shape: "square" },
    scene: { label: "a scene", colour: "#0072B2", shape: "circle" },
    sum: { label: "the sum of two objects", colour: "#D55E00", shape: "x", shape3d: "diamond" },
  };
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // How wide a text is in the page's own font: systems have fonts of very different widths.
  const pen = document.createElement("canvas").getContext("2d");
  const wideOf = (text, size) => {
    pen.font = `${size}px ${style("--sans")}`;
    return Math.max(...String(text).split("<br>").map((line) => pen.measureText(line.replace(/<[^>]+>/g, "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&")).width));
  };

  // Sizes of a figure's texts with which they stay inside it. Plotly gives a label's margin at most half of the width, else none.
  function fitted(layout, width) {
    const found = {};
    const shrunk = (texts, size, room) => Math.max(7, Math.min(size, Math.floor((10 * size * room) / Math.max(1, ...texts.map((text) => wideOf(text, size)))) / 10));
    if (layout.yaxis?.ticktext) found["yaxis.tickfont.size"] = shrunk(layout.yaxis.ticktext, layout.font.size, 0.46 * width);
    for (const axis of ["xaxis", "yaxis"]) if (layout[axis]) found[`${axis}.automargin`] = true;
    (layout.annotations || []).forEach((title, i) => { found[`annotations[${i}].font.size`] = shrunk([title.text], title.font.size, width - layout.margin.r - 8); });
    return found;
  }

  // The layout with these sizes in their places.
  function withSizes(layout, width) {
    const sized = structuredClone(layout);
    sized.font.family = style("--sans"); // Plotly measures texts outside the page's style sheet
    for (const [path, value] of Object.entries(fitted(layout, width))) {
      const keys = path.replace("[", ".").replace("]", "").split(".");
      const last = keys.pop();
      keys.reduce((part, key) => (part[key] ??= {}), sized)[last] = value;
    }
    return sized;
  }

  function traces(points, groups, space, width) {
    const labelled = groups.flatMap((group) => (group.texts ? group.members : []));
    const frame = space ? null : frameOf(points, width - 52, 356);
    const placed = space ? null : sides(points, labelled, frame);
    const made = groups.map(({ members, colour, shape, shape3d, texts }) => {
      const at = (axis) => members.map((i) => points[i][axis]);
      const trace = {
        type: space ? "scatter3d" : "scatter",
        mode: texts ? "markers+text" : "markers",
        x: at("x"), y: at("y"), customdata: members,
        text: texts ? members.map((i) => points[i].label) : undefined,
        textposition: texts && !space ? members.map((i) => placed.get(i)) : "top center",
        textfont: { size: 11, color: space ? style("--ink") : undefined },
        hovertext: members.map((i) => points[i].hover), hoverinfo: "text",
        cliponaxis: space ? undefined : false,
        marker: { color: colour, symbol: space ? shape3d : shape, size: space ? 5 : points.length > 400 ? 6 : 10, opacity: points.length > 400 ? 0.75 : 1 },
      };
      if (space) trace.z = at("z");
      return trace;
    });
    return { made, frame };
  }

  // The part of the plane that a map shows: all points in the middle, one scale for both axes, room for labels.
  function frameOf(points, width, height) {
    const span = (axis) => [Math.min(...points.map((p) => p[axis])), Math.max(...points.map((p) => p[axis]))];
    const [[left, right], [bottom, top]] = [span("x"), span("y")];
    const scale = Math.min(width / (right - left || 1), height / (top - bottom || 1)) * 0.85;
    const around = (low, high, room) => [(low + high) / 2 - room / scale / 2, (low + high) / 2 + room / scale / 2];
    return { scale, x: around(left, right, width), y: around(bottom, top, height) };
  }

  // Give each label the side on which it leaves the picture least and covers the fewest points and labels.
  function sides(points, labelled, { scale, x: [from, to], y: [floor, ceiling] }) {
    const spots = points.map((p) => [p.x * scale, p.y * scale]);
    const edge = [from * scale - 20, floor * scale - 16, to * scale + 20, ceiling * scale + 16];
    const outside = (box) => Math.max(0, edge[0] - box[0]) + Math.max(0, edge[1] - box[1]) + Math.max(0, box[2] - edge[2]) + Math.max(0, box[3] - edge[3]);
    const taken = spots.map(([x, y]) => [x - 6, y - 6, x + 6, y + 6]);
    const choices = { "top center": [-0.5, 13], "bottom center": [-0.5, -13], "middle right": [0, 0], "middle left": [-1, 0], "top right": [0, 11], "top left": [-1, 11], "bottom right": [0, -11], "bottom left": [-1, -11] };
    const placed = new Map();
    for (const i of labelled) {
      const wide = wideOf(points[i].label, 11) + 2;
      let best = null;
      for (const [name, [shift, up]] of Object.entries(choices)) {
        const gap = name.startsWith("middle") ? 8 * (shift ? -1 : 1) : 0;
        const x = spots[i][0] + shift * wide + gap;
        const box = [x, spots[i][1] + up - 6, x + wide, spots[i][1] + up + 6];
        const covered = taken.reduce((sum, [a, b, c, d], k) => {
          if (k === i) return sum;
          const [w, h] = [Math.min(box[2], c) - Math.max(box[0], a), Math.min(box[3], d) - Math.max(box[1], b)];
          return w > 0 && h > 0 ? sum + w * h : sum;
        }, 1000 * outside(box));
        if (best === null || covered < best.covered) best = { name, box, covered };
      }
      placed.set(i, best.name);
      taken.push(best.box);
    }
    return placed;
  }

  function joins(points, space) {
    const trace = { type: space ? "scatter3d" : "scatter", mode: "lines", x: [], y: [], hoverinfo: "skip", line: { color: "#868E99", width: 1.2, dash: "dot" } };
    if (space) trace.z = [];
    const scenes = points.filter((p) => p.kind === "scene");
    for (const sum of points.filter((p) => p.kind === "sum")) {
      const same = scenes.filter((s) => s.group === sum.group);
      const near = same.find((s) => sum.label.includes(s.label)) || (same.length === 1 ? same[0] : undefined);
      if (!near) continue;
      for (const axis of space ? ["x", "y", "z"] : ["x", "y"]) trace[axis].push(near[axis], sum[axis], null);
    }
    return trace;
  }

  function groupsOf(map, by) {
    const members = new Map();
    map.points.forEach((p, i) => {
      const name = by === null ? p.kind : p.values[by] ?? "none";
      if (!members.has(name)) members.set(name, []);
      members.get(name).push(i);
    });
    const coloured = by !== null && [...members.keys()].some((name) => hues[name.toLowerCase()]);
    return [...members].map(([name, list], i) => {
      const own = by === null ? undefined : hues[name.toLowerCase()];
      const kind = by === null ? kinds[name] || { label: name, colour: colours[i % 8], shape: shapes[0] } : null;
      const turn = (coloured ? i : Math.floor(i / colours.length)) % shapes.length;
      return {
        members: list,
        label: kind ? kind.label : name,
        colour: kind ? kind.colour : own || colours[i % colours.length],
        shape: kind ? kind.shape : shapes[turn],
        shape3d: kind ? kind.shape3d || kind.shape : shapes3d[turn],
        texts: by === null ? name !== "sum" : map.points.length <= 24,
      };
    });
  }

  function axes(space, frame) {
    const bare = { showticklabels: false, showgrid: space, zeroline: false, title: { text: "" }, ticks: "" };
    const base = { height: 400, margin: { l: 26, r: 26, t: 22, b: 22 }, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", font: { size: 12, family: style("--sans") } };
    if (!space) return { ...base, dragmode: false, xaxis: { ...bare, fixedrange: true, range: frame.x }, yaxis: { ...bare, fixedrange: true, scaleanchor: "x", range: frame.y } };
    const in3d = { ...bare, showbackground: false, gridcolor: style("--rule"), linecolor: style("--rule"), showspikes: false };
    return { ...base, hoverlabel: { bgcolor: style("--card"), bordercolor: style("--soft"), font: { color: style("--ink") } }, scene: { xaxis: in3d, yaxis: in3d, zaxis: in3d, aspectmode: "data" } };
  }

  function radios(parent, title, name, options, onChange) {
    if (options.length < 2) return;
    const set = document.createElement("fieldset");
    const legend = document.createElement("legend");
    legend.textContent = title;
    set.append(legend);
    options.forEach((option, i) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name, checked: i === 0 });
      input.addEventListener("change", () => onChange(option));
      label.append(input, option);
      set.append(label);
    });
    parent.append(set);
  }

  function legendOf(place, groups, space) {
    place.replaceChildren(...groups.slice(0, 24).map((group) => {
      const item = document.createElement("span");
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", "0 0 18 14");
      svg.setAttribute("class", "mark");
      svg.setAttribute("aria-hidden", "true");
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const outline = { square: "M4 2h10v10H4z", diamond: "M9 1l6 6-6 6-6-6z", "triangle-up": "M9 1.5l6 11H3z", x: "M4 4l3-3 2 3 2-3 3 3-3 3 3 3-3 3-2-3-2 3-3-3 3-3z", cross: "M7 2h4v3h3v4h-3v3H7V9H4V5h3z", star: "M9 1l2 4h4l-3 3 1 5-4-3-4 3 1-5-3-3h4z" };
      path.setAttribute("d", outline[(space ? group.shape3d : group.shape).replace("-open", "")] || "M4 7a5 5 0 1 0 10 0 5 5 0 1 0-10 0");
      const open = space && group.shape3d.endsWith("-open");
      path.setAttribute("fill", open ? "none" : group.colour);
      if (open) path.setAttribute("stroke", group.colour);
      svg.append(path);
      item.append(svg, group.label);
      return item;
    }));
    if (groups.length > 24) place.append(`and ${groups.length - 24} more`);
  }

  const offers3d = () => {
    try { return Boolean(document.createElement("canvas").getContext("webgl2") || document.createElement("canvas").getContext("webgl")); } catch { return false; }
  };

  function drawMap(place, map) {
    const controls = document.querySelector(`[data-for="${place.dataset.figure}"]`);
    const legend = document.querySelector(`[data-legend="${place.dataset.figure}"]`);
    const said = document.createElement("span");
    said.className = "said";
    said.setAttribute("role", "status");
    let space = false;
    let by = map.kinds.length ? null : map.concepts[0] ?? null;
    const draw = () => {
      const groups = groupsOf(map, by);
      legendOf(legend, groups, space);
      const { made, frame } = traces(map.points, groups, space, place.clientWidth);
      const data = by === null ? [joins(map.points, space), ...made] : made;
      return Plotly.react(place, data, axes(space, frame), { ...config, scrollZoom: false });
    };
    place.redraw = draw;
    radios(controls, "Colour by", `${place.dataset.figure}-by`, map.kinds.length ? [] : map.concepts, (choice) => { by = choice; draw(); });
    radios(controls, "View", `${place.dataset.figure}-view`, map.points.some((p) => p.z) ? ["2-D", "3-D"] : [], (choice) => {
      if (choice === "3-D" && !offers3d()) { said.textContent = "This browser offers no 3-D drawing (WebGL)."; return; }
      said.textContent = "";
      space = choice === "3-D";
      Plotly.purge(place);
      draw();
      peekOn(place, map);
    });
    controls.append(said);
    return draw().then(() => peekOn(place, map));
  }

  const peek = document.getElementById("peek");
  function peekOn(place, map) {
    place.on("plotly_hover", (event) => {
      const point = map.points[event.points[0].customdata];
      if (!point || !point.picture) return;
      peek.firstElementChild.src = point.picture;
      const mouse = event.event || { clientX: 40, clientY: 40 };
      peek.style.left = `${Math.min(mouse.clientX + 18, innerWidth - 200)}px`;
      peek.style.top = `${Math.min(mouse.clientY + 18, innerHeight - 200)}px`;
      peek.hidden = false;
    });
    place.on("plotly_unhover", () => { peek.hidden = true; });
  }

  // A place may change its width while its figure is being drawn, or without the window doing so: watch the place itself.
  const places = new ResizeObserver((changed) => {
    for (const { target } of changed) {
      const drawn = target._fullLayout?.width;
      if (drawn && target.offsetWidth && drawn !== target.offsetWidth) Plotly.relayout(target, { autosize: true, ...(figures[target.dataset.figure].map ? {} : fitted(figures[target.dataset.figure].layout, target.clientWidth)) });
    }
  });

  async function drawAll() {
    for (const place of document.querySelectorAll("[data-figure]")) {
      const spec = figures[place.dataset.figure];
      await (spec.map ? drawMap(place, spec.map) : Plotly.newPlot(place, spec.data, withSizes(spec.layout, place.clientWidth), config));
      places.observe(place);
      await new Promise((done) => setTimeout(done));
    }
    document.documentElement.dataset.ready = "yes";
  }

  const filter = document.getElementById("filter");
  if (filter) {
    const rows = [...document.querySelectorAll("#every tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
    const texts = rows.map(([row]) => [...row.cells].map((cell) => cell.textContent.toLowerCase()).join(" "));
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach(([row], i) => {
        row.hidden = !wanted.every((word) => texts[i].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      document.getElementById("filter-count").textContent = `${shown} row${shown === 1 ? "" : "s"}`;
    });
  }

  if (navigator.clipboard) {
    for (const button of document.querySelectorAll(".copy")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
    }
  }

  const resize = () => document.querySelectorAll(".js-plotly-plot").forEach((place) => Plotly.Plots.resize(place));
  addEventListener("beforeprint", resize);
  addEventListener("afterprint", resize);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.querySelectorAll("[data-figure]").forEach((place) => place.redraw && place.redraw());
  });
  drawAll();
})();
