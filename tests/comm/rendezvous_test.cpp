#include <fcntl.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <latch>
#include <semaphore>
#include <string>
#include <thread>

#include "comm/rendezvous/board.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/tcp_board.hpp"
#include "tests/comm/worlds.hpp"

namespace gradwire::test {
namespace {

using namespace std::chrono_literals;

std::string tcp(std::uint16_t port, std::string const& host = "127.0.0.1") {
  return "tcp://" + host + ":" + std::to_string(port);
}

void expect_refused(std::function<void()> const& call, errc code, std::vector<std::string> const& parts) {
  try {
    call();
    FAIL() << "was accepted";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), code) << why.what();
    for (auto const& part : parts) {
      EXPECT_NE(std::string{why.what()}.find(part), std::string::npos) << "'" << part << "' is not in: " << why.what();
    }
  }
}

// Both kinds of address, fresh.
class Rendezvous : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] std::string const& address() const { return address_; }

 private:
  temporary_folder folder_;
  std::string address_ = GetParam() ? tcp(free_port()) : "file://" + folder_.path();
};

void on_ranks(std::size_t size, std::function<void(std::size_t)> const& body) {
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < size; ++r) threads.emplace_back(body, r);
}

TEST_P(Rendezvous, EveryEntryReachesEveryRankAndTheFirstValueStays) {
  on_ranks(4, [&](std::size_t rank) {
    auto const shared = meet(address(), rank, 4, patience);
    auto const deadline = board::clock::now() + patience;
    std::string const odd{"a\0/% \xff", 6};
    shared->publish("odd/" + std::to_string(rank), odd);
    for (int r = 0; r < 4; ++r) EXPECT_EQ(shared->wait_for("odd/" + std::to_string(r), deadline), odd);
    EXPECT_EQ(shared->entries("odd/").size(), 4U);
    shared->publish("race", std::to_string(rank));
    auto const winner = shared->wait_for("race", deadline);
    shared->publish("winner/" + std::to_string(rank), winner);
    for (int r = 0; r < 4; ++r) EXPECT_EQ(shared->wait_for("winner/" + std::to_string(r), deadline), winner);
    EXPECT_TRUE(is_loopback(shared->local_address(deadline)));
    // Nobody leaves before all have read.
    shared->publish("done/" + std::to_string(rank), "");
    for (int r = 0; r < 4; ++r) static_cast<void>(shared->wait_for("done/" + std::to_string(r), deadline));
    EXPECT_TRUE(shared->lost().empty());
  });
}

TEST_P(Rendezvous, StartUpNamesTheRanksThatDidNotCome) {
  on_ranks(2, [&](std::size_t rank) {
    expect_refused([&] { static_cast<void>(meet(address(), rank * 2, 4, 400ms)); }, errc::timeout,
                   {"ranks 1 and 3 of 4 did not come"});
  });
}

TEST_P(Rendezvous, StartUpWithoutRankZeroSaysSo) {
  expect_refused([&] { static_cast<void>(meet(address(), 1, 2, 200ms)); }, errc::timeout, {"rank 0 did not"});
}

TEST_P(Rendezvous, ARankOfAnotherWorldSizeIsRefused) {
  on_ranks(2, [&](std::size_t rank) {
    if (rank == 0) {
      expect_refused([&] { static_cast<void>(meet(address(), 0, 2, 500ms)); }, errc::timeout, {"rank 1"});
    } else {
      expect_refused([&] { static_cast<void>(meet(address(), 1, 3, 5s)); }, errc::communicator,
                     {"rank 1 of 3", "2 ranks"});
    }
  });
}

TEST_P(Rendezvous, ARankThatComesTwiceIsRefused) {
  std::latch met{2};
  std::latch refused{1};
  on_ranks(3, [&](std::size_t thread) {
    if (thread < 2) {
      auto const shared = meet(address(), thread, 2, patience);
      met.count_down();
      refused.wait();
      return;
    }
    met.wait();
    expect_refused([&] { static_cast<void>(meet(address(), 0, 2, 2s)); }, errc::communicator,
                   {GetParam() ? "in use by another gradwire run of 2 ranks" : "in use by another run"});
    expect_refused([&] { static_cast<void>(meet(address(), 1, 2, 2s)); }, errc::communicator,
                   {"rank 1", "has joined", "already"});
    refused.count_down();
  });
}

// Joins as rank 1 of 2 in a process of its own and dies there without a word.
pid_t dying_rank(std::string const& address) {
  auto const child = fork();
  if (child != 0) return child;
  try {
    auto const shared = meet(address, 1, 2, patience);
    static_cast<void>(shared->wait_for("die", board::clock::now() + patience));
    _exit(0);
  } catch (error const& why) {
    std::fprintf(stderr, "the dying rank: %s\n", why.what());
    _exit(1);
  }
}

TEST_P(Rendezvous, ADeadRankIsLostForAllAndEndsTheirWaits) {
  auto const child = dying_rank(address());
  auto const shared = meet(address(), 0, 2, patience);
  std::binary_semaphore called{0};
  std::atomic<bool> once = false;
  board::subscription const watch{*shared, [&] {
                                    if (!shared->lost().empty() && !once.exchange(true)) called.release();
                                  }};
  shared->publish("die", "");
  expect_refused([&] { static_cast<void>(shared->wait_for("never", board::clock::now() + patience)); },
                 errc::communicator, {"rank 1 died"});
  EXPECT_TRUE(called.try_acquire_for(patience));
  EXPECT_EQ(shared->lost(), std::vector<std::size_t>{1});
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(File, Rendezvous, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Tcp, Rendezvous, testing::Values(true));

TEST(FileRendezvous, LeavesNothingBehind) {
  temporary_folder const folder;
  auto const inside = folder.path() + "/run7";
  on_ranks(3, [&](std::size_t rank) { static_cast<void>(meet("file://" + inside, rank, 3, patience)); });
  EXPECT_FALSE(std::filesystem::exists(inside));
}

TEST(FileRendezvous, WhatACrashedRunLeftDoesNotDisturbTheNext) {
  temporary_folder const folder;
  auto const address = "file://" + folder.path();
  auto const child = fork();
  if (child == 0) {
    auto const shared = meet(address, 0, 1, patience);
    shared->publish("leftover", "of the crashed run");
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  on_ranks(2, [&](std::size_t rank) {
    // Rank 1 is there first and sees the old run.
    if (rank == 0) std::this_thread::sleep_for(50ms);
    auto const shared = meet(address, rank, 2, patience);
    EXPECT_FALSE(shared->find("leftover").has_value());
    EXPECT_TRUE(shared->lost().empty());
  });
}

TEST(TcpRendezvous, SurvivesWhoeverElseKnocks) {
  auto const port = free_port();
  std::atomic<bool> met = false;
  on_ranks(3, [&](std::size_t rank) {
    if (rank < 2) {
      if (rank == 1) std::this_thread::sleep_for(100ms);
      EXPECT_NO_THROW(static_cast<void>(meet(tcp(port), rank, 2, patience)));
      met = true;
      return;
    }
    for (auto const& garbage :
         {std::string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n"}, std::string{}, std::string(5000, '\xff'),
          std::string("\x03\0\0\0jabc", 8), std::string("\x03\0\0\0eabc", 8)}) {
      descriptor stranger;
      while (!met && !stranger.valid()) stranger = connect_to({"127.0.0.1", port}, 100ms);
      if (stranger.valid()) static_cast<void>(::send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
    }
  });
}

TEST(TcpRendezvous, IsLeftEvenWhenRankZeroHangs) {
  // The kernel takes the connection; nobody ever reads or answers.
  auto const hanging = listen_on({"127.0.0.1", 0});
  { tcp_board const board{tcp(port_of(hanging)), 1, 2, board::clock::now() + patience}; }
}

TEST(TcpRendezvous, APortInUseIsNamedWithItsHolder) {
  auto const taken = listen_on({"127.0.0.1", 0});
  expect_refused([&] { static_cast<void>(meet(tcp(port_of(taken)), 0, 2, 3s)); }, errc::communicator,
                 {std::to_string(port_of(taken)), "in use by another program", "choose another port"});
}

TEST(TcpRendezvous, WorksOverIpv6AndNames) {
  std::vector<std::string> hosts;
  addrinfo* known = nullptr;
  if (getaddrinfo("localhost", nullptr, nullptr, &known) == 0) {
    freeaddrinfo(known);
    hosts.emplace_back("localhost");
  }
  if (listen_on({"::1", 0}).valid()) hosts.emplace_back("[::1]");
  if (hosts.empty()) GTEST_SKIP() << "this machine knows neither the name localhost nor IPv6";
  for (auto const& host : hosts) {
    auto const address = tcp(free_port(), host);
    on_ranks(2, [&](std::size_t rank) { EXPECT_NO_THROW(static_cast<void>(meet(address, rank, 2, patience))); });
  }
}

TEST(TcpRendezvous, AnUnknownHostIsNamed) {
  expect_refused([] { static_cast<void>(meet("tcp://no-such-host.invalid:29500", 1, 2, 200ms)); }, errc::timeout,
                 {"no-such-host.invalid"});
}

TEST(TcpRendezvous, AMessageThatIsTooLargeIsRefused) {
  auto const shared = meet(tcp(free_port()), 0, 1, patience);
  expect_refused([&] { shared->publish("large", std::string((1U << 20) + 1, 'x')); }, errc::communicator,
                 {"too large"});
  EXPECT_NO_THROW(shared->publish("small", "x"));
}

TEST(RendezvousAddress, OtherFormsAreRefusedWithTheRightOnes) {
  for (auto const* const wrong :
       {"", "localhost:29500", "tcp://", "tcp://host", "tcp://host:", "tcp://host:x", "tcp://:29500",
        "tcp://host:65536", "tcp://::1:29500", "file://relative", "http://host:1"}) {
    SCOPED_TRACE(wrong);
    expect_refused([&] { static_cast<void>(meet(wrong, 0, 2, 200ms)); }, errc::invalid_argument, {"tcp://host:port"});
  }
}

}  // namespace
}  // namespace gradwire::test
