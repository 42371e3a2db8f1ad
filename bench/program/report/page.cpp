#include "program/report/page.hpp"

#include <sys/utsname.h>

#include <fstream>
#include <thread>

#include <fmt/format.h>

#include <gradwire/error.hpp>
#include <gradwire/version.hpp>

#include "embedded/report_chart_js.hpp"
#include "embedded/report_page_css.hpp"
#include "embedded/report_page_js.hpp"
#include "embedded/report_shell_html.hpp"
#include "program/common/json_lines.hpp"

namespace gradwire::program {
namespace {

// The value of the first line `key<separator>value` of a file of /proc or /etc, without quotes; empty if there is none.
std::string line_value(char const* file, std::string_view key, char separator) {
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    auto const cut = line.find(separator);
    if (cut == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    auto const begin = line.find_first_not_of(" \t\"", cut + 1);
    auto const end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return {};
}

std::string facts_html(page const& page) {
  auto facts = page.facts;
  facts.emplace_back("Machine", machine_text());
  facts.emplace_back("gradwire", std::string{version()});
  std::string html;
  for (auto const& [label, text] : facts) {
    html += fmt::format("<dt>{}</dt><dd class=\"mono\">{}</dd>\n", escape_html(label), escape_html(text));
  }
  return html;
}

std::string scripts_html(page const& page) {
  std::string html;
  for (auto const script : page.scripts) html += fmt::format("<script>\n{}\n</script>\n", script);
  return html;
}

std::string field(page const& page, std::string_view name) {
  if (name == "title") return escape_html(page.title);
  if (name == "lede") return escape_html(page.lede);
  if (name == "css") return std::string{embedded::report_page_css()};
  if (name == "body") return page.body;
  if (name == "facts") return facts_html(page);
  if (name == "data") return script_json(page.data);
  if (name == "chart_js") return std::string{embedded::report_chart_js()};
  if (name == "page_js") return std::string{embedded::report_page_js()};
  if (name == "scripts") return scripts_html(page);
  throw error{errc::invalid_argument, fmt::format("shell.html asks for an unknown field: {}", name)};
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (char const c : text) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: html += c;
    }
  }
  return html;
}

std::string script_json(record const& data) {
  auto const text = data.dump(-1, ' ', false, record::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    // < > & can only stand inside strings of JSON, where a \u escape means the same.
    if (text[i] == '<') {
      safe += "\\u003c";
    } else if (text[i] == '>') {
      safe += "\\u003e";
    } else if (text[i] == '&') {
      safe += "\\u0026";
    } else if (text.compare(i, 3, "\xe2\x80\xa8") == 0 || text.compare(i, 3, "\xe2\x80\xa9") == 0) {
      safe += text[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

std::string render_page(page const& page) {
  // One pass over the shell: what is put in is never looked at again, so no text can pose as a field.
  std::string html;
  auto shell = embedded::report_shell_html();
  for (;;) {
    auto const open = shell.find("{{");
    auto const close = shell.find("}}", open);
    if (open == shell.npos || close == shell.npos) break;
    html += shell.substr(0, open);
    html += field(page, shell.substr(open + 2, close - open - 2));
    shell.remove_prefix(close + 2);
  }
  return html += shell;
}

void write_page(std::filesystem::path const& path, page const& page) { write_file(path, render_page(page)); }

std::string machine_text() {
  std::string text;
  auto const add = [&text](std::string const& part) {
    if (!part.empty()) text += (text.empty() ? "" : " · ") + part;
  };
  add(line_value("/proc/cpuinfo", "model name", ':'));
  auto const cores = std::thread::hardware_concurrency();
  add(std::to_string(cores) + (cores == 1 ? " core" : " cores"));
  add(line_value("/etc/os-release", "PRETTY_NAME=", '='));
  utsname kernel{};
  if (uname(&kernel) == 0) add(std::string{kernel.sysname} + " " + kernel.release);
  return text;
}

}  // namespace gradwire::program
