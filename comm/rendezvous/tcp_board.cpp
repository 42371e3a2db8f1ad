#include "comm/rendezvous/tcp_board.hpp"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include <gradwire/error.hpp>

#include "comm/rendezvous/frames.hpp"

namespace gradwire {
namespace {

using namespace std::chrono_literals;
using board_protocol::kind;

descriptor reach(host_and_port const& where, std::string const& address, board::clock::time_point deadline) {
  auto const begin = board::clock::now();
  std::string why = "nobody listens there";
  for (;;) {
    auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - board::clock::now());
    if (left.count() <= 0) break;
    try {
      auto socket = connect_to(where, std::min(left, std::chrono::milliseconds{5000}));
      if (socket.valid()) return socket;
    } catch (error const& unknown_host) {  // a name service may know the host a little later
      why = unknown_host.what();
    }
    std::this_thread::sleep_for(std::min(left, std::chrono::milliseconds{50}));
  }
  auto const waited = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - begin);
  throw error{errc::timeout, "rank 0 did not serve " + address + " within " + std::to_string(waited.count()) + " ms (" +
                                 why + "): is rank 0 running, and is that its machine and an open port?"};
}

}  // namespace

tcp_board::tcp_board(std::string const& address, std::size_t rank, std::size_t size, clock::time_point deadline)
    : address_{address} {
  auto where = parse_tcp(address);
  if (rank == 0) server_ = std::make_unique<tcp_server>(where, size);
  socket_ = reach(where, address, deadline);
  timeval const patience{10, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  write(board_protocol::encode_join(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size)));
  std::promise<void> closed;
  closed_ = closed.get_future();
  reader_ = std::thread{[this, closed = std::move(closed)]() mutable {
    run();
    closed.set_value();
  }};
}

tcp_board::~tcp_board() {
  try {
    write(board_protocol::encode(kind::goodbye, ""));
  } catch (error const&) {  // rank 0 is gone already
  }
  // Rank 0 answers the goodbye by closing.
  shutdown(socket_.get(), SHUT_WR);
  if (closed_.wait_for(2s) != std::future_status::ready) shutdown(socket_.get(), SHUT_RD);  // rank 0 hangs
  reader_.join();
}

void tcp_board::publish(std::string const& key, std::string const& value) {
  write(board_protocol::encode_entry(key, value));
}

std::string tcp_board::local_address(clock::time_point deadline) {
  auto const reached_from = local_address_of(socket_);
  return is_loopback(reached_from) ? wait_for("host address", deadline) : reached_from;
}

void tcp_board::write(std::string const& bytes) {
  std::scoped_lock const lock{write_mutex_};
  for (std::size_t done = 0; done < bytes.size();) {
    auto const sent = ::send(socket_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw error{errc::communicator, with_errno("the rendezvous at " + address_ + " is gone")};
    done += static_cast<std::size_t>(sent);
  }
}

void tcp_board::run() {
  std::string bytes;
  std::array<char, 65536> part{};
  for (;;) {
    auto const got = ::recv(socket_.get(), part.data(), part.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      // No goodbye: the keeper died.
      learn("lost/0", "");
      return close("rank 0 died");
    }
    bytes.append(part.data(), static_cast<std::size_t>(got));
    try {
      while (auto const next = board_protocol::take(bytes)) {
        if (next->what == kind::goodbye) return close("");
        if (next->what == kind::refuse) return close(next->payload);
        std::string key;
        std::string value;
        board_protocol::decode_entry(next->payload, key, value);
        learn(key, value);
      }
    } catch (error const& garbled) {
      return close("what answers at " + address_ + " is not a gradwire rendezvous (" + garbled.what() + ")");
    }
  }
}

}  // namespace gradwire
