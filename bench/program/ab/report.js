'use strict';
// The pictures of report.html. gw.data: see report.cpp.
(() => {
  const {data, format, html, svg} = gw;
  const arms = data.arms;
  const baseline = arms.findIndex((arm) => arm.baseline);
  const place = (id) => document.getElementById(id);
  const places = Math.max(0, Math.ceil(-Math.log10(data.margin))) + 2;
  const value_text = (value) => (Math.abs(value) >= 1e6 ? format.number(value, 4) : value.toFixed(places).replace('-', '−'));
  const signed_text = (value) => (value > 0 ? '+' : '') + value_text(value);

  for (const cell of document.querySelectorAll('[data-swatch]')) {
    const index = Number(cell.dataset.swatch);
    gw.drawn(() => {
      cell.querySelector('svg')?.remove();
      cell.prepend(gw.swatch(index, index === baseline));
    });
  }

  // ---- differences with their intervals -------------------------------------------------------------------------------
  const extent = (arm) => Math.max(...(arm.ci95 || [arm.difference]).concat(arm.differences.map((one) => one[1])).map(Math.abs));
  function forest() {
    const judged = arms.map((arm, index) => ({arm, index})).filter((one) => !one.arm.baseline && one.arm.difference !== null);
    if (judged.length === 0) {
      place('forest').replaceChildren(html('p', {class: 'empty'}, 'No arm shares a finished seed with the baseline.'));
      return;
    }
    // Arms far outside would squeeze the others: they are drawn as arrows at the edge.
    const sizes = judged.map((one) => extent(one.arm));
    const fitting = sizes.filter((size) => size <= 8 * data.margin);
    const limit = 1.06 * Math.max(1.5 * data.margin, ...(fitting.length ? fitting : [Math.min(...sizes)]));
    const scale = (value) => (value + limit) / (2 * limit);
    const inside = (value) => Math.min(Math.max(value, -limit), limit);
    const middle = [-data.margin, 0, data.margin];
    const labelled = middle.map((at) => ({at, label: at === 0 ? '0' : signed_text(at)}));
    const step = 0.4 * data.margin;
    for (const at of gw.ticks(-limit, limit)) {
      if (middle.every((other) => Math.abs(at - other) > step)) labelled.push({at, label: signed_text(at)});
    }
    labelled.sort((a, b) => a.at - b.at);
    gw.rows(place('forest'), {
      baseline,
      scale,
      ticks: labelled,
      caption: data.better === 'higher' ? '← worse than the baseline · better →' : '← better than the baseline · worse →',
      under: (group, x, top, bottom) => {
        group.append(svg('rect', {x: x(-data.margin), width: x(data.margin) - x(-data.margin), y: top, height: bottom - top, fill: gw.colour('zone')}));
        group.append(svg('line', {x1: x(0), x2: x(0), y1: top, y2: bottom, stroke: gw.colour('soft'), 'stroke-width': 1.5}));
        for (const edge of [-data.margin, data.margin]) {
          group.append(svg('line', {x1: x(edge), x2: x(edge), y1: top, y2: bottom, stroke: gw.colour('zone-edge'), 'stroke-dasharray': '4 3', 'stroke-width': 1.5}));
        }
      },
      rows: judged.map(({arm, index}) => ({
        name: arm.name,
        index,
        text: signed_text(arm.difference) + (arm.ci95 ? ` [${signed_text(arm.ci95[0])}, ${signed_text(arm.ci95[1])}]` : ' [no interval]'),
        mark: (group, x, y) => mark_difference(group, x, y, arm, gw.series(index).colour, limit, inside),
      })),
    });
  }
  function mark_difference(group, x, y, arm, colour, limit, inside) {
    const line = (from, to, width) => svg('line', {x1: x(inside(from)), x2: x(inside(to)), y1: y, y2: y, stroke: colour, 'stroke-width': width});
    const arrow = (side) => {
      const tip = x(side * limit);
      return svg('path', {d: `M${tip} ${y} l${-9 * side} -6 v12 Z`, fill: colour});
    };
    for (const [, difference] of arm.differences) {
      if (Math.abs(difference) <= limit) group.append(svg('circle', {cx: x(difference), cy: y + 8, r: 2.4, fill: gw.faded(colour, 0.55)}));
    }
    if (arm.ci95) {
      const [low, high] = arm.ci95;
      if (low < limit && high > -limit) group.append(line(low, high, 1.6), line(...arm.ci90.map(inside), 5));
      if (low < -limit) group.append(arrow(-1));
      if (high > limit) group.append(arrow(1));
      for (const end of [low, high]) {
        if (Math.abs(end) <= limit) group.append(svg('line', {x1: x(end), x2: x(end), y1: y - 5, y2: y + 5, stroke: colour, 'stroke-width': 1.6}));
      }
    }
    if (Math.abs(arm.difference) <= limit) {
      group.append(svg('rect', {x: x(arm.difference) - 5, y: y - 5, width: 10, height: 10, transform: `rotate(45 ${x(arm.difference)} ${y})`,
                                fill: gw.colour('card'), stroke: colour, 'stroke-width': 2}));
    }
  }
  gw.drawn(forest);

  // ---- learning curves --------------------------------------------------------------------------------------------------
  const view = {what: 'eval', x: 'step', part: 0, hidden: new Set()};
  const axes = {
    step: {label: 'optimizer steps', text: (value) => format.number(value, 4)},
    bytes: {label: 'bytes sent by one rank (log scale)', text: format.bytes, log: true},
    seconds: {label: 'training time', text: format.seconds},
  };
  const whats = [{key: 'eval', label: data.metric}, {key: 'loss', label: 'training loss'}].filter(
    (what) => arms.some((arm) => arm.curves[what.key].step.length > 1));
  if (whats.length === 0) {
    gw.chart(place('curves'), () => null);
    place('curves').classList.add('auto');
  } else {
    view.what = whats[0].key;
    learning_curves();
  }
  function curve_points(arm) {
    const curve = arm.curves[view.what];
    const half = view.part === 0 ? -Infinity : 0.5 * Math.max(...arms.flatMap((one) => one.curves[view.what].step));
    return curve.step.map((step, i) => ({x: curve[view.x][i], step, y: curve.mean[i], low: curve.low[i], high: curve.high[i], seeds: curve.seeds[i]}))
      .filter((point) => point.x !== null && point.step >= half && (!axes[view.x].log || point.x > 0));
  }
  function curve_sets(arm, index) {
    const look = gw.series(index, arm.baseline);
    const points = curve_points(arm);
    // The baseline lies below the arms, and is wider, so that an arm that runs along it is seen.
    const order = arm.baseline ? 1 : 0;
    const band = {label: arm.name, borderWidth: 0, pointRadius: 0, pointHitRadius: 0, band: true, order};
    return [
      {...band, data: points.map(({x, low}) => ({x, y: low})), fill: false},
      {...band, data: points.map(({x, high}) => ({x, y: high})), fill: '-1', backgroundColor: gw.faded(look.colour, 0.14)},
      {label: arm.name, data: points, borderColor: look.colour, backgroundColor: look.colour, borderWidth: arm.baseline ? 5 : look.width, borderDash: look.dash, order,
       pointStyle: look.marker, pointRadius: points.length > 30 ? 0 : 3.5, pointHoverRadius: 5, fill: false},
    ];
  }
  function axis_options(narrow) {
    const axis = axes[view.x];
    const ys = arms.flatMap((arm, index) => (view.hidden.has(index) ? [] : curve_points(arm).map((point) => point.y)));
    const log_y = ys.length > 0 && Math.min(...ys) > 0 && Math.max(...ys) / Math.min(...ys) > 1000;
    const y_label = whats.find((what) => what.key === view.what).label;
    return {
      x: {type: axis.log ? 'logarithmic' : 'linear', title: {display: true, text: axis.label},
          ticks: {callback: (value) => (axis.log && !/^[125]/.test(String(value.toExponential())) ? null : axis.text(value)), maxRotation: 0, autoSkipPadding: 14}},
      y: {type: log_y ? 'logarithmic' : 'linear', title: {display: !narrow, text: y_label + (log_y ? ' (log scale)' : '')},
          ticks: {callback: (value) => (log_y && !/^1e/.test(value.toExponential()) ? null : format.number(value, 3))}},
    };
  }
  function learning_curves() {
    const has_axis = (name) => name === 'step' || arms.some((arm) => whats.some((what) => arm.curves[what.key][name].some((value) => value !== null)));
    const axis_names = Object.keys(axes).filter(has_axis);
    view.hidden = gw.legend(place('legend'), arms.map((arm) => arm.name), baseline, () => redraw());
    const redraw = gw.chart(place('curves'), ({narrow}) => {
      const datasets = arms.flatMap((arm, index) => (view.hidden.has(index) ? [] : curve_sets(arm, index)));
      if (!datasets.some((set) => set.data.length > 0) && view.hidden.size === 0) return null;
      return {
        type: 'line',
        data: {datasets},
        options: {
          interaction: {mode: 'nearest', axis: 'xy', intersect: false},
          scales: axis_options(narrow),
          plugins: {
            legend: {display: false},
            tooltip: {
              filter: (item) => !item.dataset.band,
              callbacks: {
                title: (items) => (items.length ? `${items[0].dataset.label}, step ${format.number(items[0].raw.step, 6)}` : ''),
                label: ({raw}) => `${format.number(raw.y, 5)}  (${format.number(raw.low, 5)} to ${format.number(raw.high, 5)} over ${raw.seeds} seed${raw.seeds === 1 ? '' : 's'})`,
                afterLabel: ({raw}) => (view.x === 'step' ? '' : axes[view.x].text(raw.x)),
              },
            },
          },
        },
      };
    });
    const controls = place('curve-controls');
    gw.tabs(controls, 'What', whats.map((what) => what.label), (index) => { view.what = whats[index].key; redraw(); });
    gw.tabs(controls, 'Against', axis_names.map((name) => ({step: 'by step', bytes: 'by bytes', seconds: 'by time'}[name])),
            (index) => { view.x = axis_names[index]; redraw(); });
    gw.tabs(controls, 'Part', ['whole run', 'second half'], (index) => { view.part = index; redraw(); });
  }

  // ---- bytes and time of a step -------------------------------------------------------------------------------------------
  const costed = (key) => arms.map((arm, index) => ({arm, index})).filter((one) => one.arm.step[key] !== null);
  const nothing = (id) => place(id).replaceChildren(html('p', {class: 'empty'}, 'The runs wrote no step records with this in them.'));
  const bar = (x, from, to, y, fill) => svg('rect', {x: x(from), y: y - 7, width: Math.max(1, x(to) - x(from)), height: 14, rx: 2, fill});

  gw.drawn(() => {
    const rows = costed('wire_bytes').filter((one) => one.arm.step.wire_bytes > 0);
    if (rows.length === 0) return nothing('bytes');
    const bytes = rows.map((one) => one.arm.step.wire_bytes);
    const low = Math.floor(Math.log10(Math.min(...bytes) * 0.6));
    const high = Math.max(low + 1, Math.log10(Math.max(...bytes) * 1.3));
    const scale = (value) => (Math.log10(value) - low) / (high - low);
    const ticks = [];
    for (let power = low; power <= high; ++power) ticks.push({at: 10 ** power, label: format.bytes(10 ** power)});
    gw.rows(place('bytes'), {
      baseline, scale, ticks, caption: 'bytes sent by one rank in a step (log scale)',
      rows: rows.map(({arm, index}) => ({
        name: arm.name, index,
        text: format.bytes(arm.step.wire_bytes) + (arm.compression ? ` · ${format.number(arm.compression)}×` : ''),
        mark: (group, x, y) => group.append(bar(x, 10 ** low, arm.step.wire_bytes, y, gw.series(index, arm.baseline).colour)),
      })),
    });
  });

  gw.drawn(() => {
    const rows = costed('compute_seconds');
    if (rows.length === 0) return nothing('time');
    const total = (one) => one.arm.step.compute_seconds + (one.arm.step.exposed_seconds || 0);
    const high = 1.05 * Math.max(...rows.map(total));
    gw.rows(place('time'), {
      baseline, scale: (value) => value / high, ticks: gw.ticks(0, high, 4).map((at) => ({at, label: format.seconds(at)})),
      rows: rows.map((one) => ({
        name: one.arm.name, index: one.index, text: format.seconds(total(one)),
        mark: (group, x, y) => {
          const {compute_seconds: compute, exposed_seconds: exposed} = one.arm.step;
          group.append(bar(x, 0, compute, y, gw.colour('compute')));
          if (exposed > 0) group.append(bar(x, compute, compute + exposed, y, gw.colour('exposed')));
        },
      })),
    });
  });
})();
