#include "comm/rendezvous/verdict.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "comm/host_communicator.hpp"

namespace gradwire {

struct verdict::state_of_ranks {
  struct statement {
    ending how{};
    std::string operation;
  };
  std::map<std::size_t, statement> reports;  // by rank in the group
  std::vector<std::size_t> lost;

  [[nodiscard]] std::vector<std::size_t> with(ending how) const {
    std::vector<std::size_t> ranks;
    for (auto const& [rank, said] : reports) {
      if (said.how == how) ranks.push_back(rank);
    }
    return ranks;
  }
};

namespace {

// "3text" as error, and back: what the first rank to know publishes for the others.
std::string to_text(error const& what) { return std::to_string(static_cast<int>(what.code())) + what.what(); }

error to_error(std::string const& text) { return error{static_cast<errc>(text.front() - '0'), text.substr(1)}; }

}  // namespace

verdict::verdict(std::shared_ptr<board> shared, std::string group, std::vector<std::size_t> members, std::size_t rank,
                 std::chrono::milliseconds timeout)
    : board_{std::move(shared)},
      group_{std::move(group)},
      members_{std::move(members)},
      rank_{rank},
      timeout_{timeout} {}

std::string verdict::key(std::string const& kind) const { return kind + "/" + group_ + "/"; }

void verdict::report(ending how, std::string const& operation) const noexcept {
  try {
    board_->publish(key("report") + std::to_string(rank_), static_cast<char>(how) + operation);
  } catch (std::exception const&) {  // the board is gone, and the others see that for themselves
  }
}

bool verdict::spoiled() const {
  if (!look().lost.empty()) return true;
  // A group "0.1" was split from "0" and fails with it.
  for (std::size_t end = 0; end != std::string::npos;) {
    end = group_.find('.', end + 1);
    auto const ancestor = group_.substr(0, end);
    for (auto const& [rank, text] : board_->entries("report/" + ancestor + "/")) {
      if (static_cast<ending>(text.front()) != ending::left) return true;
    }
  }
  return false;
}

bool verdict::has_left(std::size_t rank) const {
  auto const said = board_->find(key("report") + std::to_string(rank));
  return said && static_cast<ending>(said->front()) == ending::left;
}

verdict::state_of_ranks verdict::look() const {
  state_of_ranks seen;
  for (auto const& [rank, text] : board_->entries(key("report"))) {
    std::size_t number = 0;
    std::from_chars(rank.data(), rank.data() + rank.size(), number);
    seen.reports[number] = {static_cast<ending>(text.front()), text.substr(1)};
  }
  auto const lost = board_->lost();
  for (std::size_t r = 0; r < members_.size(); ++r) {
    // Who reported a failure and ended then is not its cause.
    if (std::find(lost.begin(), lost.end(), members_[r]) != lost.end() && !seen.reports.contains(r)) {
      seen.lost.push_back(r);
    }
  }
  return seen;
}

error verdict::find(ending how, std::string const& operation, std::string const& detail) const {
  report(how, operation);
  constexpr std::chrono::milliseconds patience{1000};
  auto const deadline = board::clock::now() + std::min(patience, timeout_);
  auto const known = [&] { return board_->entries(key("verdict")); };
  board_->wait_until(
      [&] {
        auto const seen = look();
        return !known().empty() || !seen.lost.empty() || !seen.with(ending::aborted).empty() ||
               seen.reports.size() == members_.size();
      },
      deadline);
  if (known().empty()) {
    auto own = judge(look(), operation, detail);
    try {
      board_->publish(key("verdict") + "first", to_text(own));
      board_->wait_until([&] { return !known().empty(); }, board::clock::now() + patience);
    } catch (error const&) {  // the board is gone: everybody judges alone
    }
    if (known().empty()) return own;
  }
  return to_error(known().begin()->second);
}

error verdict::judge(state_of_ranks const& seen, std::string const& operation, std::string const& detail) const {
  if (!seen.lost.empty()) return {errc::communicator, name_ranks(seen.lost) + " died during " + operation};
  if (auto const ranks = seen.with(ending::aborted); !ranks.empty()) {
    return {errc::communicator, name_ranks(ranks) + " aborted the group"};
  }
  if (auto const ranks = seen.with(ending::left); !ranks.empty()) {
    return {errc::communicator, name_ranks(ranks) + " left the group while others wait in " + operation};
  }
  std::vector<std::size_t> silent;
  for (std::size_t r = 0; r < members_.size(); ++r) {
    auto const at = seen.reports.find(r);
    if (at == seen.reports.end()) {
      silent.push_back(r);
    } else if (at->second.operation != seen.reports.begin()->second.operation &&
               !at->second.operation.starts_with("send") && !at->second.operation.starts_with("recv")) {
      auto const& [first, reported] = *seen.reports.begin();
      return {errc::mismatch, "ranks issued different collectives: rank " + std::to_string(first) + " " +
                                  reported.operation + ", rank " + std::to_string(r) + " " + at->second.operation +
                                  "; all ranks must issue the same ones in the same order"};
    }
  }
  auto const within = " within " + std::to_string(timeout_.count()) + " ms";
  bool const timed_out = !seen.with(ending::timed_out).empty();
  if (timed_out && !silent.empty()) {
    return {errc::timeout, name_ranks(silent) + " did not arrive at " + operation + within};
  }
  if (timed_out) {
    return {errc::timeout, "all ranks came to " + operation + " but it did not end" + within +
                               ": sizes that differ between ranks, or a link too slow for this timeout"};
  }
  return {errc::communicator, "a connection failed during " + operation +
                                  (silent.empty() ? "" : ", perhaps to " + name_ranks(silent)) + ": " + detail};
}

}  // namespace gradwire
