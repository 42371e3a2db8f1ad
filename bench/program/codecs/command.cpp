#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <gradwire/codec.hpp>
#include <gradwire/spec.hpp>

#include "program/codecs/describe.hpp"
#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/json_lines.hpp"

namespace gradwire::program {
namespace {

struct codecs_options {
  output_options output;
  std::string spec;
};

void list(console& people, json_lines& records) {
  table methods{{{"method", align::left}, {"id"}, {"version"}, {"bits/element"}, {"", align::left}}};
  table keys{{{"key", align::left},
              {"type", align::left},
              {"default", align::left},
              {"range", align::left},
              {"", align::left}}};
  for (codec_entry const* const entry : codecs()) {
    codec const preset = codec::parse(entry->name);
    records.write(codec_record(*entry));
    methods.add({std::string{entry->name}, std::to_string(entry->wire_id), std::to_string(entry->version),
                 fmt::format("{:.4g}", bits_per_element(preset, std::size_t{1} << 20)), std::string{entry->summary}});
    if (auto const traits = traits_text(preset.traits()); !traits.empty()) methods.add({"", "", "", "", traits});
    for (codec_key const& key : entry->keys) {
      keys.add({fmt::format("{}({}=)", entry->name, key.name), std::string{type_text(key)}, value_text(key, key.preset),
                range_text(key), std::string{key.help}});
    }
  }
  people.write(methods.text());
  people.write("\n" + keys.text());
  people.write(
      "\nAny method takes +ef (error feedback), +via(REDUCTION) and +warmup(steps=N).\n"
      "`gradwire codecs 'onebit(block=512)+ef'` explains one spec.\n");
}

void explain(std::string const& given, console& people, json_lines& records) {
  spec const how = spec::parse(given);
  records.write(spec_record(given, how));
  codec_entry const& entry = how.codec.entry();
  people.print("{}\n  understood as  {}\n", given, how.text());
  people.print("  {:<13}  {}\n", entry.name, entry.summary);
  for (std::size_t i = 0; i < entry.keys.size(); ++i) {
    codec_key const& key = entry.keys[i];
    std::string const value = value_text(key, how.codec.params().values[i]);
    people.print("    {:<11}  {} ({}; {})\n", key.name, value.empty() ? "not set" : value, key.help, range_text(key));
  }
  if (auto const traits = traits_text(how.codec.traits()); !traits.empty())
    people.print("  {:<13}  {}\n", "traits", traits);
  people.print("  {:<13}  {}\n", "feedback",
               how.error_feedback ? "what a step loses is added to the next gradient" : "none: what is lost is lost");
  if (how.warmup_steps > 0) people.print("  {:<13}  dense f32 for the first {} steps\n", "warm-up", how.warmup_steps);
  double const bits = bits_per_element(how.codec, std::size_t{1} << 20);
  people.print("  {:<13}  {:.4g} bits an element, {:.4g} times less than f32\n\n", "payload", bits, 32 / bits);
  table costs{{{"ranks"}, {"reduction", align::left}, {"bytes a rank sends"}, {"dense f32"}, {"ratio"}}};
  for (spec_cost const& cost : spec_costs(how)) {
    double const wire = static_cast<double>(cost.wire_bytes);
    costs.add({std::to_string(cost.ranks), cost.reduction, format_bytes(wire), format_bytes(cost.dense_bytes),
               fmt::format("{:.3g}", cost.dense_bytes / wire)});
  }
  people.write("For a tensor of 1,048,576 f32 numbers:\n" + costs.text());
}

exit_code run_codecs(codecs_options const& options) {
  console people{options.output};
  json_lines records{options.output.json};
  if (options.spec.empty()) {
    list(people, records);
  } else {
    explain(options.spec, people, records);
  }
  return exit_code::done;
}

}  // namespace

void add_codecs(CLI::App& app, context& ctx) {
  auto* const command = app.add_subcommand("codecs", "list the methods, or explain one spec");
  auto const options = std::make_shared<codecs_options>();
  command->add_option("SPEC", options->spec, "explain this spec: how it is understood and what it sends");
  add_output_options(*command, options->output, "one record a method, or one of the spec");
  command->footer("Example: gradwire codecs 'quant(bits=4)+ef'");
  command->callback([&ctx, options] { ctx.run = [options] { return run_codecs(*options); }; });
}

}  // namespace gradwire::program
