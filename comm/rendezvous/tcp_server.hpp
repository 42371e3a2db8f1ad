#pragma once

#include <atomic>
#include <list>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/rendezvous/board.hpp"
#include "comm/rendezvous/socket.hpp"

namespace gradwire {

//! The board's keeper at rank 0: repeats every entry to every rank, tells latecomers what stands already, and writes
//! "lost/<rank>" when a connection ends without a goodbye. Whoever does not speak the protocol is shown the door.
class tcp_server {
 public:
  //! Throws errc::communicator when the port is taken, saying by whom as far as that can be found out.
  tcp_server(host_and_port const& where, std::size_t size);
  //! Says goodbye to all ranks.
  ~tcp_server();
  tcp_server(tcp_server const&) = delete;
  tcp_server& operator=(tcp_server const&) = delete;
  tcp_server(tcp_server&&) = delete;
  tcp_server& operator=(tcp_server&&) = delete;

 private:
  struct connection {
    descriptor socket;
    board::clock::time_point since;
    std::string in;
    std::string out;
    std::size_t rank = 0;
    bool joined = false;
    bool leaving = false;  // closes when `out` is written
  };

  void run();
  void accept_all();
  void read_from(connection& from);
  void handle(connection& from, char kind, std::string const& payload);
  void join(connection& from, std::string const& payload);
  void refuse(connection& to, std::string const& text);
  void publish(std::string const& key, std::string const& value);
  void flush(connection& to);
  void drop(connection& gone);
  void publish_host_address();

  host_and_port where_;
  std::size_t size_;
  descriptor listener_;
  descriptor wake_read_;
  descriptor wake_write_;
  std::list<connection> connections_;
  std::map<std::string, std::string> entries_;
  std::set<std::size_t> seen_;  // ranks that have ever joined
  std::thread thread_;
};

}  // namespace gradwire
