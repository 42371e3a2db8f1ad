'use strict';
// sweep.html: break-even curves, the Pareto front and the tables, for the setting that the reader chose.
(() => {
  const {cases, break_evens: break_evens} = gw.data;
  const by_id = (id) => document.getElementById(id);
  const unique = (values) => [...new Set(values)];
  const settings = unique(cases.map((one) => one.setting));
  const specs = unique(cases.map((one) => one.spec));
  const baseline = specs.findIndex((spec) => cases.some((one) => one.spec === spec && one.baseline));
  const here = (setting) => cases.filter((one) => one.setting === setting);
  let setting = settings[0];
  const redraws = [];
  const redraw = () => redraws.forEach((draw) => draw());

  // Sizes are powers of 1024, as they were asked for.
  const size_text = (bytes) => {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) {
      bytes /= 1024;
      unit += 1;
    }
    return gw.format.number(bytes, 4) + ' ' + units[unit];
  };
  const microseconds = (value) => gw.format.seconds(value / 1e6);
  const ticks = {maxRotation: 0, autoSkipPadding: 12};
  const look = (index) => {
    const style = gw.series(index, index === baseline);
    return {borderColor: style.colour, backgroundColor: style.colour, borderDash: style.dash, borderWidth: style.width,
            pointStyle: style.marker, pointRadius: 4, pointHoverRadius: 6};
  };

  // ---- controls ---------------------------------------------------------------------------------------------------
  gw.tabs(by_id('settings'), 'setting', settings, (index) => {
    setting = settings[index];
    redraw();
  });
  const hidden = by_id('legend') && specs.length > 0
    ? gw.legend(by_id('legend'), specs, baseline, () => redraw()) : new Set();
  const shown = () => specs.map((spec, index) => ({spec, index})).filter(({index}) => !hidden.has(index));

  // ---- time relative to dense -------------------------------------------------------------------------------------
  const dense_time = (bytes) => here(setting).find((one) => one.baseline && one.bytes === bytes)?.time_us;
  const ratio_config = ({narrow}) => {
    const datasets = shown().map(({spec, index}) => ({
      label: spec, ...look(index),
      data: here(setting).filter((one) => one.spec === spec && one.bytes > 0 && dense_time(one.bytes) > 0)
        .map((one) => ({x: one.bytes, y: one.time_us / dense_time(one.bytes), one})),
      clip: 8, ...(index === baseline ? {pointRadius: 0} : {}),
    })).filter((set) => set.data.length > 0);
    if (datasets.length === 0) return null;
    const ratios = datasets.flatMap((set) => set.data.map((point) => point.y));
    const sizes = unique(datasets.flatMap((set) => set.data.map((point) => point.x))).sort((a, b) => a - b);
    return {type: 'line', data: {datasets}, options: {
      parsing: false,
      layout: {padding: {right: narrow ? 12 : 24}},
      interaction: {mode: 'nearest', intersect: false},
      scales: {
        x: {type: 'logarithmic', title: {display: true, text: 'size of the gradients'},
            min: sizes[0], max: sizes[sizes.length - 1],
            afterBuildTicks: (axis) => { axis.ticks = sizes.map((value) => ({value})); },
            ticks: {...ticks, callback: size_text}},
        y: {type: 'logarithmic', title: {display: !narrow, text: 'time / dense time'},
            min: Math.min(0.9, ...ratios) / 1.15, max: Math.max(1.1, ...ratios) * 1.15,
            afterBuildTicks: (axis) => { axis.ticks = decade_ticks(axis); },
            ticks: {callback: (value) => gw.format.number(value, 2) + '×'},
            grid: {color: (context) => (context.tick.value === 1 ? gw.colour('soft') : gw.colour('line'))}},
      },
      plugins: {
        legend: {display: false},
        tooltip: {callbacks: {
          title: (items) => size_text(items[0].parsed.x),
          label: (item) => `${item.dataset.label}: ${gw.format.number(item.parsed.y)}× dense, ` +
            microseconds(item.raw.one.time_us),
        }},
      },
    }};
  };
  // 1, 2 and 5 in every decade of the axis, at most.
  function decade_ticks(axis) {
    const values = [];
    for (let power = Math.floor(Math.log10(axis.min)); 10 ** power <= axis.max; power += 1) {
      for (const digit of axis.max / axis.min < 300 ? [1, 2, 5] : [1]) {
        const value = digit * 10 ** power;
        if (value >= axis.min && value <= axis.max) values.push({value});
      }
    }
    return values;
  }

  // ---- error against cost -----------------------------------------------------------------------------------------
  const exact_floor = 1e-8;  // f32 rounding is far below; a log axis has no 0
  const costs = [
    {name: 'time', axis: 'time of one call', of: (one) => one.time_us, text: microseconds},
    {name: 'bytes sent', axis: 'bytes sent by a rank', of: (one) => one.wire_bytes, text: gw.format.bytes},
  ];
  let cost = costs[0];
  let size = Math.max(...cases.map((one) => one.bytes));
  function front_of(points) {
    let best = Infinity;
    return [...points].sort((a, b) => a.x - b.x || a.y - b.y).filter((point) => {
      const keeps = point.y < best;
      best = Math.min(best, point.y);
      return keeps;
    });
  }
  const pareto_config = ({narrow}) => {
    const points = shown().flatMap(({spec, index}) => here(setting)
      .filter((one) => one.spec === spec && one.bytes === size && one.nmse !== null && cost.of(one) > 0)
      .map((one) => ({x: cost.of(one), y: Math.max(one.nmse, exact_floor), one, index})));
    if (points.length === 0) return null;
    const front = front_of(points);
    const datasets = points.map((point) => ({
      label: point.one.spec, ...look(point.index), data: [point], pointRadius: 7, pointHoverRadius: 9, showLine: false,
    }));
    datasets.push({label: 'Pareto front', data: front, showLine: true, borderColor: gw.colour('soft'),
                   borderDash: [6, 4], borderWidth: 1.5, pointRadius: 12, pointStyle: 'circle',
                   pointBackgroundColor: 'transparent', pointBorderColor: gw.colour('soft'), pointHitRadius: 0,
                   pointHoverRadius: 12, stepped: 'before', order: 1});
    const xs = points.map((point) => point.x);
    return {type: 'scatter', data: {datasets}, options: {
      parsing: false,
      layout: {padding: {right: narrow ? 8 : 24, top: 12}},
      scales: {
        x: {type: 'logarithmic', title: {display: true, text: cost.axis}, min: Math.min(...xs) / 1.4,
            max: Math.max(...xs) * 1.4, afterBuildTicks: (axis) => { axis.ticks = decade_ticks(axis); },
            ticks: {...ticks, callback: cost.text}},
        y: {type: 'logarithmic', title: {display: !narrow, text: 'error (nmse)'}, min: exact_floor / 3, max: 10,
            afterBuildTicks: (axis) => { axis.ticks = [-8, -6, -4, -2, 0].map((power) => ({value: 10 ** power})); },
            ticks: {callback: (value) => (value <= exact_floor ? 'exact' : gw.format.number(value, 1))}},
      },
      plugins: {
        legend: {display: false},
        tooltip: {filter: (item) => item.dataset.label !== 'Pareto front', callbacks: {
          label: ({raw}) => `${raw.one.spec}: nmse ${gw.format.number(raw.one.nmse)}, ${cost.text(raw.x)}` +
            (front.includes(raw) ? ' (on the front)' : ''),
        }},
      },
    }};
  };

  // ---- tables -----------------------------------------------------------------------------------------------------
  const cell = (text, name = 'num', label = null) => gw.html('td', {class: name, 'data-label': label}, text);
  const table = (heads, rows, name = '') => gw.html('table', {class: name},
    gw.html('thead', {}, gw.html('tr', {}, ...heads.map(([text, name]) => gw.html('th', {class: name}, text)))),
    gw.html('tbody', {}, ...rows));
  const named = (spec) => {
    const index = specs.indexOf(spec);
    return gw.html('td', {class: 'arm wide', 'data-swatch': index}, gw.swatch(index, index === baseline), spec);
  };
  const even_table = () => table(
    [['method', ''], ['reduction', ''], ['faster than dense from', 'num'], ['at best, times as fast', 'num'],
     ['at', 'num']],
    break_evens.filter((one) => one.setting === setting).map((one) => gw.html('tr', {},
      named(one.spec), cell(one.reduction, '', 'reduction'),
      gw.html('td', {class: 'num', 'data-label': 'faster than dense from'}, one.bytes === null
        ? gw.html('span', {class: 'badge quiet'}, 'none in this range')
        : gw.html('span', {class: 'badge good'}, size_text(one.bytes))),
      cell(gw.format.number(one.best_speedup), 'num', 'at best, times as fast'),
      cell(size_text(one.best_bytes), 'num', 'at'))), 'stack');
  const number = (value) => (value === null ? 'N/A' : gw.format.number(value));
  const case_table = () => table(
    [['method', ''], ['reduction', ''], ['size', 'num'], ['time', 'num'], ['p99', 'num'], ['algbw GB/s', 'num'],
     ['busbw GB/s', 'num'], ['wirebw GB/s', 'num'], ['ratio', 'num'], ['nmse', 'num'], ['wrong', 'num']],
    here(setting).map((one) => gw.html('tr', {}, named(one.spec), cell(one.reduction, ''), cell(size_text(one.bytes)),
      cell(microseconds(one.time_us)), cell(microseconds(one.p99_us)), cell(number(one.algbw_gbps)),
      cell(number(one.busbw_gbps)), cell(number(one.wirebw_gbps)), cell(number(one.ratio)), cell(number(one.nmse)),
      gw.html('td', {class: 'num'}, gw.html('span', {class: one.wrong === 0 ? '' : 'badge bad'}, String(one.wrong))))));
  const fill = (id, make) => {
    if (by_id(id)) redraws.push(gw.drawn(() => by_id(id).replaceChildren(make())));
  };

  if (by_id('ratio')) {
    redraws.push(gw.chart(by_id('ratio'), ratio_config));
    const pareto = gw.chart(by_id('pareto'), pareto_config);
    redraws.push(pareto);
    const controls = by_id('pareto-controls');
    gw.tabs(controls, 'cost', costs.map((one) => one.name), (index) => {
      cost = costs[index];
      pareto();
    });
    const sizes = unique(cases.map((one) => one.bytes)).sort((a, b) => a - b);
    const choice = gw.html('select', {'aria-label': 'size', onchange: () => {
      size = Number(choice.value);
      pareto();
    }}, ...sizes.map((bytes) => gw.html('option', {value: bytes}, size_text(bytes))));
    choice.value = String(size);
    controls.append(gw.html('label', {}, 'at ', choice));
  }
  fill('break-even', even_table);
  fill('cases', case_table);
})();
