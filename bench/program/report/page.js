'use strict';
// What every report can use, as `gw`. Charts take their colours from page.css and are made again when the reader's theme,
// the width or the medium (paper) changes.
const gw = (() => {
  const data = JSON.parse(document.getElementById('gw-data').textContent);
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue('--' + name).trim();
  const narrow = () => window.matchMedia('(max-width: 640px)').matches;

  // ---- numbers ------------------------------------------------------------------------------------------------------
  const scaled = (value, units, step) => {
    let index = 0;
    while (index + 1 < units.length && Math.abs(value) >= step * 0.9995) {
      value /= step;
      index += 1;
    }
    return number(value, 3) + ' ' + units[index];
  };
  // `digits` significant ones, never an exponent between 1e-6 and 1e9, no trailing zeros.
  function number(value, digits = 3) {
    if (value === null || value === undefined || !Number.isFinite(value)) return '–';
    if (value === 0) return '0';
    const size = Math.abs(value);
    if (size < 1e-6 || size >= 1e9) return value.toExponential(digits - 1).replace('-', '−');
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    const text = value.toFixed(Math.min(places, 12));
    return (text.includes('.') ? text.replace(/\.?0+$/, '') : text).replace('-', '−');
  }
  const format = {
    number,
    signed: (value, digits = 3) => (value > 0 ? '+' : '') + number(value, digits),
    bytes: (value) => (value === null || value === undefined ? '–' : scaled(value, ['B', 'kB', 'MB', 'GB', 'TB'], 1000)),
    seconds: (value) => {
      if (value === null || value === undefined) return '–';
      if (value >= 120) return number(value / 60, 3) + ' min';
      if (value >= 1 || value === 0) return number(value, 3) + ' s';
      return value >= 1e-3 ? number(value * 1e3, 3) + ' ms' : number(value * 1e6, 3) + ' µs';
    },
  };

  // ---- elements -----------------------------------------------------------------------------------------------------
  const make = (namespace) => (tag, attributes = {}, ...children) => {
    const node = namespace ? document.createElementNS(namespace, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children);  // strings become text nodes: nothing is ever parsed as HTML
    return node;
  };
  const html = make('');
  const svg = make('http://www.w3.org/2000/svg');

  // ---- series: one look per arm, everywhere -------------------------------------------------------------------------
  const markers = ['circle', 'rect', 'triangle', 'rectRot', 'crossRot', 'star'];
  const dashes = [[], [7, 4], [2, 3]];
  // The baseline is drawn in the colour of the text, so that it never takes a place in the palette.
  const series = (index, baseline = false) => ({
    colour: colour(baseline ? 'ink' : 'c' + (index % 12)),
    marker: markers[index % markers.length],
    dash: baseline ? [] : dashes[Math.floor(index / 6) % dashes.length],
    width: baseline ? 2.5 : 2,
  });
  // `#rrggbb` with an alpha of 0..1.
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, '0');

  function swatch(index, baseline) {
    const look = series(index, baseline);
    const shape = {
      circle: svg('circle', {cx: 13, cy: 6, r: 4}),
      rect: svg('rect', {x: 9.5, y: 2.5, width: 7, height: 7}),
      triangle: svg('path', {d: 'M13 1.5 L17.5 9.5 L8.5 9.5 Z'}),
      rectRot: svg('path', {d: 'M13 1 L18 6 L13 11 L8 6 Z'}),
      crossRot: svg('path', {d: 'M9.5 2.5 L16.5 9.5 M16.5 2.5 L9.5 9.5', 'stroke-width': 2.2}),
      star: svg('path', {d: 'M13 1 V11 M8.5 3.5 L17.5 8.5 M17.5 3.5 L8.5 8.5', 'stroke-width': 1.8}),
    }[look.marker];
    shape.setAttribute('fill', look.colour);
    shape.setAttribute('stroke', look.colour);
    const line = svg('line', {x1: 0, x2: 26, y1: 6, y2: 6, stroke: look.colour, 'stroke-width': look.width,
                              'stroke-dasharray': look.dash.join(' ')});
    return svg('svg', {class: 'swatch', viewBox: '0 0 26 12', 'aria-hidden': 'true'}, line, shape);
  }

  // ---- drawing, again when the look changes -------------------------------------------------------------------------
  const drawings = [];
  function redraw() {
    for (const draw of drawings) draw();
  }
  // draw() runs now and whenever theme, width class or medium change.
  function drawn(draw) {
    drawings.push(draw);
    draw();
    return draw;
  }
  // make_config({narrow}) gives a Chart.js configuration; the returned function makes the chart again.
  function chart(plot, make_config) {
    let current = null;
    // A phone has no room for the title of the upright axis beside it.
    const upright = html('p', {class: 'note upright'});
    plot.before(upright);
    return drawn(() => {
      if (current) current.destroy();
      plot.replaceChildren();
      upright.textContent = '';
      Chart.defaults.color = colour('soft');
      Chart.defaults.borderColor = colour('line');
      Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
      Chart.defaults.font.size = 12;
      const config = make_config({narrow: narrow()});
      if (!config) {
        plot.append(html('p', {class: 'empty'}, 'Nothing to draw: this picture needs at least two records of an arm.'));
        current = null;
        return;
      }
      const title = config.options.scales?.y?.title;
      if (title && !title.display) upright.textContent = '↑ ' + title.text;
      const canvas = html('canvas', {role: 'img', 'aria-label': plot.dataset.label || ''});
      plot.append(canvas);
      config.options = Object.assign({animation: false, responsive: true, maintainAspectRatio: false}, config.options);
      current = new Chart(canvas, config);
    });
  }
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', redraw);
  window.matchMedia('(max-width: 640px)').addEventListener('change', redraw);
  window.addEventListener('beforeprint', () => { root.classList.add('printing'); redraw(); });
  window.addEventListener('afterprint', () => { root.classList.remove('printing'); redraw(); });
  // SVG drawings depend on the width itself.
  let width = window.innerWidth;
  window.addEventListener('resize', () => {
    if (window.innerWidth !== width) {
      width = window.innerWidth;
      requestAnimationFrame(redraw);
    }
  });

  // ---- controls -----------------------------------------------------------------------------------------------------
  // labels: [text, …]; chosen(index) runs on a click, not at the start. Arrow keys move.
  function tabs(place, name, labels, chosen) {
    const buttons = labels.map((label, index) => html('button', {
      type: 'button', role: 'tab', 'aria-selected': index === 0, tabindex: index === 0 ? 0 : -1,
      onclick: () => select(index),
      onkeydown: (event) => {
        const move = {ArrowRight: 1, ArrowLeft: -1}[event.key];
        if (move) select((index + move + labels.length) % labels.length, true);
      },
    }, label));
    function select(index, focus = false) {
      buttons.forEach((button, i) => {
        button.setAttribute('aria-selected', i === index);
        button.tabIndex = i === index ? 0 : -1;
      });
      if (focus) buttons[index].focus();
      chosen(index);
    }
    if (labels.length > 1) place.append(html('div', {class: 'tabs', role: 'tablist', 'aria-label': name}, ...buttons));
  }
  // One button per name that shows and hides it; returns the set of hidden indices. baseline: its index or -1.
  function legend(place, names, baseline, changed) {
    const hidden = new Set();
    drawn(() => place.replaceChildren(...names.map((name, index) => html('button', {
      type: 'button', 'aria-pressed': !hidden.has(index), title: 'show or hide',
      onclick: (event) => {
        if (!hidden.delete(index)) hidden.add(index);
        event.currentTarget.setAttribute('aria-pressed', !hidden.has(index));
        changed();
      },
    }, swatch(index, index === baseline), name))));
    return hidden;
  }

  // ---- rows: one line an arm, a name at the left, numbers at the right, marks between ---------------------------------
  const pen = document.createElement('canvas').getContext('2d');
  function text_width(text, strong = false) {
    pen.font = (strong ? '600 ' : '') + '13px ' + getComputedStyle(document.body).fontFamily;
    return Math.ceil(pen.measureText(text).width);
  }
  function shortened(text, room, strong) {
    if (text_width(text, strong) <= room) return text;
    while (text.length > 1 && text_width(text + '…', strong) > room) text = text.slice(0, -1);
    return text + '…';
  }
  // rows: [{name, index, text, mark(group, x, y)}]; scale(value) gives 0..1 across the marks; ticks: [{at, label}];
  // under(group, x, top, bottom) draws behind the marks; baseline: index or -1. In a narrow place names and numbers stand
  // above the marks.
  function rows(plot, {rows, baseline = -1, scale, ticks, caption = '', under = () => {}}) {
    const width = Math.max(plot.clientWidth, 120);  // 0 while the page is not laid out
    const name_room = Math.max(...rows.map((row) => text_width(row.name, true))) + 44;
    const text_room = Math.max(...rows.map((row) => text_width(row.text))) + 16;
    const stacked = width - name_room - text_room < 260;
    const two_lines = stacked && name_room + text_room > width;
    const left = stacked ? 6 : name_room;
    const right = width - (stacked ? 6 : text_room);
    const above = stacked ? (two_lines ? 40 : 22) : 0;
    const pitch = above + (stacked ? 34 : 32);
    const top = 8;
    const bottom = top + rows.length * pitch;
    const height = bottom + 26 + (caption ? 18 : 0);
    const x = (value) => left + scale(value) * (right - left);
    const group = svg('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': plot.dataset.label || ''});
    // Behind the marks only, so that no line runs through names and numbers that stand above them.
    const bands = stacked ? rows.map((row, i) => [top + i * pitch + above, top + (i + 1) * pitch - 6]) : [[top, bottom]];
    for (const [from, to] of bands) under(group, x, from, to);
    let last_end = -Infinity;
    for (const tick of ticks) {
      const at = x(tick.at);
      for (const [from, to] of bands) group.append(svg('line', {x1: at, x2: at, y1: from, y2: to, stroke: colour('line')}));
      const half = text_width(tick.label) / 2;
      const centre = Math.min(Math.max(at, half), width - half);
      if (centre - half < last_end + 8) continue;  // no room for this label
      last_end = centre + half;
      group.append(svg('text', {x: centre, y: bottom + 17, 'text-anchor': 'middle', class: 'soft'}, tick.label));
    }
    rows.forEach((row, i) => {
      const y = top + i * pitch + above + (stacked ? 14 : pitch / 2);
      const line = stacked ? top + i * pitch + 14 : y + 4.5;
      const picture = swatch(row.index, row.index === baseline);
      for (const [name, value] of Object.entries({x: 0, y: line - 10.5, width: 26, height: 12})) picture.setAttribute(name, value);
      const room = stacked && !two_lines ? width - text_room - 34 : (stacked ? width : name_room) - 34;
      const name = svg('text', {x: 34, y: line, class: 'strong'}, shortened(row.name, room, true));
      name.append(svg('title', {}, row.name));
      const text = two_lines ? svg('text', {x: 34, y: line + 18}, row.text)
                             : svg('text', {x: width, y: line, 'text-anchor': 'end'}, row.text);
      group.append(picture, name, text);
      row.mark(group, x, y);
    });
    if (caption) {
      group.append(svg('text', {x: (left + right) / 2, y: bottom + 38, 'text-anchor': 'middle', class: 'soft'}, caption));
    }
    plot.replaceChildren(group);
  }
  // Round values that cut [low, high] in about `count` pieces.
  function ticks(low, high, count = 6) {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
    const result = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) result.push(i * step);
    return result;
  }

  return {data, format, html, svg, colour, series, faded, swatch, narrow, drawn, chart, tabs, legend, rows, ticks};
})();
