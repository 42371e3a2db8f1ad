#include "overlap/configuration.hpp"

#include <string>

#include <gradwire/error.hpp>
#include <gradwire/version.hpp>

#include "compressors/text.hpp"

namespace gradwire::overlap {

reducer_options checked(reducer_options options) {
  if (options.on.kind != device_kind::cpu) {
    throw error{errc::unsupported, "this build has no reducer for CUDA gradients: use reducer_options::on with CPU"};
  }
  expects(options.first_bucket_bytes > 0 && options.bucket_bytes > 0 && options.chunk_bytes > 0,
          "first_bucket_bytes, bucket_bytes and chunk_bytes must be 1 or more");
  return options;
}

std::vector<config_field> configuration(model const& of, reducer_options const& options) {
  std::string rules;
  for (rule const& each : options.rules) rules += join({rules.empty() ? "" : "; ", each.text()});
  std::vector<config_field> fields{{"gradwire version", std::string{version()}},
                                   {"method", options.method.text()},
                                   {"rules", rules},
                                   {"min_numel", std::to_string(options.min_numel)},
                                   {"first_bucket_bytes", std::to_string(options.first_bucket_bytes)},
                                   {"bucket_bytes", std::to_string(options.bucket_bytes)},
                                   {"chunk_bytes", std::to_string(options.chunk_bytes)},
                                   {"seed", std::to_string(options.seed)},
                                   {"number of parameters", std::to_string(of.parameters().size())}};
  for (std::size_t i = 0; i < of.parameters().size(); ++i) {
    auto const& each = of.parameters()[i];
    fields.push_back({join({"parameter ", std::to_string(i)}), join({each.given.name, " ", each.text()})});
  }
  return fields;
}

}  // namespace gradwire::overlap
