#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/common/json_lines.hpp"

namespace gradwire::program {

//! One self-contained HTML file: style, data, Chart.js and scripts inside, no network. `gradwire ab` writes report.html
//! with it and `gradwire sweep` sweep.html. A folder that uses it includes ../report/report.cmake in its command.cmake
//! and embeds its own scripts with gradwire_embed.
//!
//! What the body can use (page.css): `<section class="card">` with `<h2>` and `<p class="note">`; `<div
//! class="scroll"><table>` for tables that may be wider than a phone; `class="num"` on numeric cells; `<span
//! class="badge good|bad|warn|quiet">`; `<div class="plot" id=…>` as the place of a chart; `<div class="legend" id=…>`;
//! `<details>`.
//!
//! What scripts can use (page.js, documented there): `gw.data` (this `data`), `gw.series(index, baseline)` (colour,
//! dash and marker of one arm, the same in every chart), `gw.chart(plot, make_config)` (Chart.js in the page's colours;
//! made again when the theme or the width changes), `gw.tabs`, `gw.legend`, `gw.format.{bytes,seconds,number,signed}`,
//! `gw.svg`. Data is text: put it in the page with `textContent`, never `innerHTML`.
struct page {
  std::string title;  //!< plain text, escaped here; the heading and the name of the tab
  std::string lede;   //!< plain text, escaped here; one or two sentences that say what came out
  std::string body;   //!< HTML; everything in it that came from outside must have gone through escape_html
  record data;
  std::vector<std::string_view> scripts;  //!< JavaScript, run in this order after Chart.js and page.js
  //! Label and text, plain, shown at the foot: the command that made it, date, … Machine and version are added here.
  std::vector<std::pair<std::string, std::string>> facts;
};

//! `text` with & < > " ' as character references: safe inside an element and inside a quoted attribute.
[[nodiscard]] std::string escape_html(std::string_view text);

//! `data` as JSON that can stand inside a <script> element: < > & and the two Unicode line separators are \u escapes,
//! bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string script_json(record const& data);

[[nodiscard]] std::string render_page(page const& page);

//! Writes render_page(page) to `path`, whole or not at all. Throws program_error that names the path and the reason.
void write_page(std::filesystem::path const& path, page const& page);

//! "Intel(R) Xeon(R) … · 2 cores · Debian GNU/Linux 12 (bookworm) · Linux 6.1": for reports.
[[nodiscard]] std::string machine_text();

}  // namespace gradwire::program
