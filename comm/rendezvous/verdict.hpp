#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gradwire/error.hpp>

#include "comm/rendezvous/board.hpp"

namespace gradwire {

//! How a rank's part in a group ended, as it tells the others.
enum class ending : char {
  timed_out = 't',  //!< waited for the whole timeout
  broken = 'b',     //!< a connection failed
  aborted = 'a',
  left = 'l'  //!< destroyed its communicator
};

//! Finds out, after a failure, who is to blame: what each rank reports about itself, and who is lost to the board. The
//! transport itself knows addresses at best. The ranks of a group come to the same words, but where a board keeps no
//! order between ranks: two that judge at once may each keep to their own there.
class verdict {
 public:
  //! `members[r]` is the board's number of the group's rank r.
  verdict(std::shared_ptr<board> shared, std::string group, std::vector<std::size_t> members, std::size_t rank,
          std::chrono::milliseconds timeout);

  //! `operation` is what this rank was in. Never throws; what cannot be reported is left out.
  void report(ending how, std::string const& operation) const noexcept;

  //! True when this group, or one it was split from, can no longer work: a member died, aborted or failed.
  [[nodiscard]] bool spoiled() const;

  //! True when a rank of the group destroyed its communicator.
  [[nodiscard]] bool has_left(std::size_t rank) const;

  //! Reports this rank's failure, gathers the others' reports for a second or so and returns the group's error.
  //! `detail` is the transport's own text.
  [[nodiscard]] error find(ending how, std::string const& operation, std::string const& detail) const;

 private:
  struct state_of_ranks;
  [[nodiscard]] state_of_ranks look() const;
  [[nodiscard]] error judge(state_of_ranks const& seen, std::string const& operation, std::string const& detail) const;
  [[nodiscard]] std::string key(std::string const& kind) const;

  std::shared_ptr<board> board_;
  std::string group_;
  std::vector<std::size_t> members_;
  std::size_t rank_;
  std::chrono::milliseconds timeout_;
};

}  // namespace gradwire
