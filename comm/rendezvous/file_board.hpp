#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "comm/rendezvous/board.hpp"
#include "comm/rendezvous/socket.hpp"

namespace gradwire {

//! A rank's copy of a board kept in a folder that all ranks see.
//!
//!   folder/run               name of the run's own folder and world size; rank 0 holds a lock on it
//!   folder/<run>/rank-<r>    rank r holds a lock on it for as long as it lives, and removes it when it leaves
//!   folder/<run>/entry-<key> one entry, complete when it appears
//!
//! The kernel drops the locks of a process that dies, however it dies. What a crashed run left is told from a living
//! one by its locks, and removed. The last rank to leave removes everything.
class file_board final : public meeting {
 public:
  //! Rank 0 opens the run; the others look for it until `deadline`.
  file_board(std::filesystem::path folder, std::size_t rank, std::size_t size, clock::time_point deadline);
  ~file_board() override;
  file_board(file_board const&) = delete;
  file_board& operator=(file_board const&) = delete;
  file_board(file_board&&) = delete;
  file_board& operator=(file_board&&) = delete;

  void publish(std::string const& key, std::string const& value) override;
  [[nodiscard]] std::string local_address(clock::time_point deadline) override;

 private:
  void open_run();
  void find_run(clock::time_point deadline);
  void take_place();
  void run();
  void look();
  void clean_up();

  std::filesystem::path folder_;
  std::filesystem::path run_;
  std::size_t rank_;
  std::size_t size_;
  descriptor run_lock_;  // rank 0's
  descriptor rank_lock_;
  // The watcher's: entry files already read, and when to look at the locks again.
  std::set<std::string> known_;
  clock::time_point look_at_locks_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  clock::time_point busy_until_;
  std::size_t written_ = 0;
  std::thread watcher_;
};

}  // namespace gradwire
