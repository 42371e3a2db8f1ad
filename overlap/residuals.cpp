#include "overlap/residuals.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <gradwire/error.hpp>

#include "compressors/text.hpp"

namespace gradwire::overlap {
namespace {

using run_key = std::pair<std::uint32_t, std::uint64_t>;  // parameter, first element

std::map<run_key, std::span<float>> places(std::span<bucket const> buckets) {
  std::map<run_key, std::span<float>> result;
  for (bucket const& each : buckets) {
    for (chunk const& part : each.chunks) {
      for (owner_residual const& run : part.method->owner_residuals()) {
        result.emplace(run_key{run.tensor_id, run.first}, run.values);
      }
    }
  }
  return result;
}

[[noreturn]] void mismatch(std::initializer_list<std::string_view> what) {
  throw error{errc::mismatch, join({"the state does not belong to this reducer: ", join(what)})};
}

[[noreturn]] void contradiction(std::string_view what) {
  throw error{errc::corrupt_payload, join({"the state contradicts itself: ", what})};
}

void check_state(saved_state const& state, model const& of, std::size_t rank, std::size_t ranks) {
  auto const parameters = of.parameters();
  if (state.ranks != ranks || state.rank != rank) {
    mismatch({"it is of rank ", std::to_string(state.rank), " of ", std::to_string(state.ranks),
              ", where that of rank ", std::to_string(rank), " of ", std::to_string(ranks),
              " was expected; pass one state per old rank, in order"});
  }
  if (state.parameters.size() != parameters.size()) {
    mismatch({"it has ", std::to_string(state.parameters.size()), " parameters, the reducer has ",
              std::to_string(parameters.size())});
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto const& saved = state.parameters[i];
    if (saved.name != parameters[i].given.name || saved.text != parameters[i].text()) {
      mismatch({"its parameter ", std::to_string(i), " is '", saved.name, "' (", saved.text, "), the reducer's is '",
                parameters[i].given.name, "' (", parameters[i].text(), ")"});
    }
    if (saved.residual.size() != (parameters[i].method.error_feedback ? parameters[i].count : 0)) {
      contradiction(join({"the residual of '", saved.name, "' has another size than the parameter"}));
    }
  }
  std::vector<std::uint32_t> sorted = state.order;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != i) contradiction("its order of parameters names one twice or not at all");
  }
  if (sorted.size() != parameters.size()) contradiction("its order of parameters has another length");
  for (auto const& run : state.owner_runs) {
    if (run.parameter >= parameters.size() || !parameters[run.parameter].method.error_feedback ||
        run.first > parameters[run.parameter].count ||
        run.values.size() > parameters[run.parameter].count - run.first) {
      contradiction("an owner residual lies outside its parameter");
    }
  }
}

}  // namespace

std::vector<saved_state::owner_run> owner_runs(std::span<bucket const> buckets) {
  std::vector<saved_state::owner_run> result;
  for (auto const& [key, values] : places(buckets)) {
    result.push_back({key.first, key.second, {values.begin(), values.end()}});
  }
  return result;
}

void place_owner_runs(std::span<saved_state::owner_run const> runs, std::span<bucket> buckets, model& into,
                      std::size_t ranks) {
  auto const here = places(buckets);
  bool const same = std::all_of(runs.begin(), runs.end(), [&](saved_state::owner_run const& run) {
    auto const found = here.find({run.parameter, run.first});
    return found != here.end() && found->second.size() == run.values.size();
  });
  for (saved_state::owner_run const& run : runs) {
    if (same) {
      std::copy(run.values.begin(), run.values.end(), here.at({run.parameter, run.first}).begin());
      continue;
    }
    auto const residual = into.residual(run.parameter).subspan(run.first, run.values.size());
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += static_cast<float>(ranks) * run.values[i];
  }
}

saved_state capture(model& of, std::vector<saved_state::owner_run> owner_runs) {
  saved_state state;
  state.owner_runs = std::move(owner_runs);
  for (std::size_t i = 0; i < of.parameters().size(); ++i) {
    auto const& each = of.parameters()[i];
    auto const residual = of.residual(i);
    state.parameters.push_back({each.given.name, each.text(), {residual.begin(), residual.end()}});
  }
  return state;
}

std::vector<saved_state> read_states(std::span<std::vector<std::byte> const> states, model const& of, std::size_t rank,
                                     std::size_t ranks) {
  expects(!states.empty(), "load_state() wants the states of all old ranks, in order, and got none");
  std::vector<saved_state> result;
  for (std::size_t r = 0; r < states.size(); ++r) {
    if (states.size() == ranks && r != rank) continue;
    result.push_back(read_state(states[r]));
    check_state(result.back(), of, r, states.size());
  }
  saved_state const& first = result.front();
  for (saved_state const& each : result) {
    if (each.step != first.step || each.seed != first.seed || each.order != first.order) {
      throw error{errc::mismatch,
                  "the states are of different steps or runs: pass those that all ranks saved together"};
    }
  }
  return result;
}

void restore_residuals(saved_state const& state, model& into) {
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    std::copy(state.parameters[i].residual.begin(), state.parameters[i].residual.end(), into.residual(i).begin());
  }
}

void merge_residuals(std::span<saved_state const> states, model& into) {
  double const ranks = static_cast<double>(states.size());
  for (std::size_t i = 0; i < into.parameters().size(); ++i) {
    auto const residual = into.residual(i);
    std::vector<double> sum(residual.size());
    for (saved_state const& state : states) {
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += static_cast<double>(state.parameters[i].residual[k]);
      for (auto const& run : state.owner_runs) {
        if (run.parameter != i) continue;
        for (std::size_t k = 0; k < run.values.size(); ++k)
          sum[run.first + k] += ranks * static_cast<double>(run.values[k]);
      }
    }
    for (std::size_t k = 0; k < sum.size(); ++k) residual[k] = static_cast<float>(sum[k] / ranks);
  }
}

}  // namespace gradwire::overlap
