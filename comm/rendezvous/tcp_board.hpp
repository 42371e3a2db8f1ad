#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/rendezvous/board.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/tcp_server.hpp"

namespace gradwire {

//! A rank's copy of a board that rank 0 keeps on a TCP port.
class tcp_board final : public meeting {
 public:
  //! Rank 0 serves; the others try to reach it until `deadline`.
  tcp_board(std::string const& address, std::size_t rank, std::size_t size, clock::time_point deadline);
  ~tcp_board() override;
  tcp_board(tcp_board const&) = delete;
  tcp_board& operator=(tcp_board const&) = delete;
  tcp_board(tcp_board&&) = delete;
  tcp_board& operator=(tcp_board&&) = delete;

  void publish(std::string const& key, std::string const& value) override;
  [[nodiscard]] std::string local_address(clock::time_point deadline) override;

 private:
  void write(std::string const& bytes);
  void run();

  std::string address_;
  std::unique_ptr<tcp_server> server_;
  descriptor socket_;
  std::mutex write_mutex_;
  std::thread reader_;
  std::future<void> closed_;  // the reader is done
};

}  // namespace gradwire
