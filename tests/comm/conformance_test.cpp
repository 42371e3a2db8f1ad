#include "tests/comm/conformance.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include <gradwire/dtype.hpp>

namespace gradwire::test {
namespace {

using sizes = std::vector<std::size_t>;

// The byte at `index` of what rank `from` sends to rank `to`: any mix-up shows.
std::byte pattern(std::size_t from, std::size_t to, std::size_t index) {
  return static_cast<std::byte>(from * 101 + to * 31 + index * 7 + 1);
}

std::size_t total(sizes const& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

// Small whole numbers: every sum of them is exact in every dtype, in any order.
float value_of(std::size_t rank, std::size_t index) { return static_cast<float>((rank * 5 + index * 3) % 17) - 8; }

float expected_of(std::size_t ranks, std::size_t index, reduce_op op) {
  float result = value_of(0, index);
  for (std::size_t r = 1; r < ranks; ++r) {
    auto const next = value_of(r, index);
    if (op == reduce_op::sum) result += next;
    if (op == reduce_op::max) result = std::max(result, next);
    if (op == reduce_op::min) result = std::min(result, next);
  }
  return result;
}

// Numbers in one of the three dtypes.
class numbers {
 public:
  numbers(dtype type, std::size_t count) : type_{type}, bytes_(count * size_of(type)) {}
  void set(std::size_t i, float value) {
    if (type_ == dtype::f32) put(i, value);
    if (type_ == dtype::f16) put(i, to_f16(value));
    if (type_ == dtype::bf16) put(i, to_bf16(value));
  }
  [[nodiscard]] float get(std::size_t i) const {
    if (type_ == dtype::f32) return take<float>(i);
    return type_ == dtype::f16 ? to_float(take<f16>(i)) : to_float(take<bf16>(i));
  }
  [[nodiscard]] elements view() { return {bytes_.data(), type_}; }
  [[nodiscard]] std::span<std::byte const> bytes() const { return bytes_; }

 private:
  template <class T>
  void put(std::size_t i, T value) {
    std::memcpy(bytes_.data() + i * sizeof(T), &value, sizeof(T));
  }
  template <class T>
  [[nodiscard]] T take(std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  dtype type_;
  std::vector<std::byte> bytes_;
};

constexpr std::array all_dtypes{dtype::f32, dtype::f16, dtype::bf16};
constexpr std::array all_ops{reduce_op::sum, reduce_op::max, reduce_op::min};

void check_all_gather(communicator& comm, sizes const& bytes, bool in_place, stream_ref stream = {}) {
  auto const me = comm.rank();
  auto const before = std::accumulate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
  std::vector<std::byte> own(bytes[me]);
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = pattern(me, 0, i);
  std::vector<std::byte> out(total(bytes));
  std::span<std::byte const> in = own;
  if (in_place && !own.empty()) {
    std::memcpy(out.data() + before, own.data(), own.size());
    in = std::span{out}.subspan(before, own.size());
  }
  comm.all_gather(in, out, bytes, stream).wait();
  std::size_t at = 0;
  for (std::size_t r = 0; r < comm.size(); ++r) {
    for (std::size_t i = 0; i < bytes[r]; ++i, ++at)
      ASSERT_EQ(out[at], pattern(r, 0, i)) << "rank " << r << " byte " << i;
  }
}

// Rank a sends bytes(a, b) bytes to rank b.
template <class Bytes>
void check_all_to_all(communicator& comm, Bytes bytes, stream_ref stream = {}) {
  auto const me = comm.rank();
  sizes send;
  sizes receive;
  std::vector<std::byte> in;
  for (std::size_t r = 0; r < comm.size(); ++r) {
    send.push_back(bytes(me, r));
    receive.push_back(bytes(r, me));
    for (std::size_t i = 0; i < send.back(); ++i) in.push_back(pattern(me, r, i));
  }
  std::vector<std::byte> out(total(receive));
  comm.all_to_all(in, send, out, receive, stream).wait();
  std::size_t at = 0;
  for (std::size_t r = 0; r < comm.size(); ++r) {
    for (std::size_t i = 0; i < receive[r]; ++i, ++at) ASSERT_EQ(out[at], pattern(r, me, i)) << "from " << r;
  }
}

void check_all_reduce(communicator& comm, std::size_t count, dtype type, reduce_op op, stream_ref stream = {}) {
  numbers mine{type, count};
  for (std::size_t i = 0; i < count; ++i) mine.set(i, value_of(comm.rank(), i));
  comm.all_reduce(mine.view(), count, op, stream).wait();
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(mine.get(i), expected_of(comm.size(), i, op)) << to_string(type) << " element " << i << " of " << count;
  }
}

void check_reduce_scatter(communicator& comm, sizes const& counts, dtype type, reduce_op op, stream_ref stream = {}) {
  auto const all = total(counts);
  numbers in{type, all};
  for (std::size_t i = 0; i < all; ++i) in.set(i, value_of(comm.rank(), i));
  numbers out{type, counts[comm.rank()]};
  comm.reduce_scatter(in.view(), out.view(), counts, op, stream).wait();
  auto const first =
      std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(comm.rank()), std::size_t{0});
  for (std::size_t i = 0; i < counts[comm.rank()]; ++i) {
    ASSERT_EQ(out.get(i), expected_of(comm.size(), first + i, op)) << to_string(type) << " element " << i;
  }
}

void check_broadcast(communicator& comm, std::size_t root, std::size_t bytes, stream_ref stream = {}) {
  std::vector<std::byte> data(bytes);
  if (comm.rank() == root) {
    for (std::size_t i = 0; i < bytes; ++i) data[i] = pattern(root, 9, i);
  }
  comm.broadcast(data, root, stream).wait();
  for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], pattern(root, 9, i)) << "byte " << i;
}

sizes unequal(std::size_t ranks, std::size_t scale) {
  sizes result;
  for (std::size_t r = 0; r < ranks; ++r) result.push_back((r * 3 + 2) % 5 * scale);  // 2, 0, 3, 1, 4, 2, 0
  return result;
}

TEST_P(Conformance, RanksAreNumberedFromZeroAndKnowTheirTransport) {
  run([&](communicator& comm) {
    EXPECT_EQ(comm.size(), size());
    EXPECT_EQ(comm.timeout(), patience);
    EXPECT_FALSE(comm.transport().empty());
    std::vector<std::size_t> seen(size());
    auto const own = comm.rank();
    comm.all_gather(std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{seen}),
                    sizes(size(), sizeof own), {})
        .wait();
    for (std::size_t r = 0; r < size(); ++r) EXPECT_EQ(seen[r], r);
  });
}

TEST_P(Conformance, AllGatherPutsContributionsInRankOrder) {
  run([](communicator& comm) {
    for (bool const in_place : {false, true}) {
      check_all_gather(comm, sizes(comm.size(), 0), in_place);
      check_all_gather(comm, sizes(comm.size(), 5), in_place);
      check_all_gather(comm, unequal(comm.size(), 1), in_place);
      check_all_gather(comm, unequal(comm.size(), 10'007), in_place);
    }
  });
}

TEST_P(Conformance, AllToAllDeliversEachPartToItsRank) {
  run([](communicator& comm) {
    check_all_to_all(comm, [](std::size_t, std::size_t) { return std::size_t{0}; });
    check_all_to_all(comm, [](std::size_t, std::size_t) { return std::size_t{17}; });
    check_all_to_all(comm, [](std::size_t from, std::size_t to) { return (from * 7 + to * 3) % 5; });
    check_all_to_all(comm, [](std::size_t from, std::size_t to) { return (from + to * 2) % 3 * 10'007; });
  });
}

TEST_P(Conformance, AllReduceIsExactForEveryDtypeOperationAndCount) {
  run([](communicator& comm) {
    for (std::size_t const count :
         {std::size_t{0}, std::size_t{1}, comm.size() - 1, comm.size() + 1, std::size_t{1000}}) {
      for (auto const type : all_dtypes) {
        for (auto const op : all_ops) check_all_reduce(comm, count, type, op);
      }
    }
    check_all_reduce(comm, (std::size_t{1} << 16) + 3, dtype::f32, reduce_op::sum);
  });
}

TEST_P(Conformance, AllRanksEndWithTheSameBytesWhenSumsAreRounded) {
  run([](communicator& comm) {
    constexpr std::size_t count = 10'007;
    for (auto const type : all_dtypes) {
      numbers mine{type, count};
      std::mt19937 random{static_cast<unsigned>(comm.rank() + 1)};
      std::normal_distribution<float> normal;
      for (std::size_t i = 0; i < count; ++i) mine.set(i, normal(random));
      comm.all_reduce(mine.view(), count, reduce_op::sum, {}).wait();
      std::vector<std::byte> all(mine.bytes().size() * comm.size());
      comm.all_gather(mine.bytes(), all, sizes(comm.size(), mine.bytes().size()), {}).wait();
      for (std::size_t r = 1; r < comm.size(); ++r) {
        ASSERT_EQ(std::memcmp(all.data(), all.data() + r * mine.bytes().size(), mine.bytes().size()), 0)
            << "ranks 0 and " << r << " differ in " << to_string(type);
      }
    }
  });
}

TEST_P(OneWorld, NarrowSumsAreRoundedToNearestEvenAtEachHop) {
  // In f16, 2048 + 1 is a tie and rounds to 2048; in bf16, 256 + 1 does to 256. Two ranks make one hop.
  run_all(GetParam(), 2, [](communicator& comm) {
    for (auto const& [type, large] : {std::pair{dtype::f16, 2048.0F}, std::pair{dtype::bf16, 256.0F}}) {
      numbers mine{type, 3};
      for (std::size_t i = 0; i < 3; ++i) mine.set(i, comm.rank() == 0 ? large : static_cast<float>(i + 1));
      comm.all_reduce(mine.view(), 3, reduce_op::sum, {}).wait();
      EXPECT_EQ(mine.get(0), large);
      EXPECT_EQ(mine.get(1), large + 2);
      EXPECT_EQ(mine.get(2), large + 4);
    }
  });
}

TEST_P(Conformance, MaxAndMinKeepNaN) {
  run([](communicator& comm) {
    for (auto const type : all_dtypes) {
      for (auto const op : {reduce_op::max, reduce_op::min}) {
        numbers mine{type, 8};
        for (std::size_t i = 0; i < 8; ++i) {
          mine.set(i, i == comm.rank() ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
        }
        comm.all_reduce(mine.view(), 8, op, {}).wait();
        for (std::size_t i = 0; i < 8; ++i) {
          EXPECT_EQ(std::isnan(mine.get(i)), i < comm.size()) << "element " << i;
        }
      }
    }
  });
}

TEST_P(Conformance, ReduceScatterGivesEachRankItsPart) {
  run([](communicator& comm) {
    for (auto const type : all_dtypes) {
      for (auto const op : all_ops) {
        check_reduce_scatter(comm, sizes(comm.size(), 3), type, op);
        check_reduce_scatter(comm, unequal(comm.size(), 1'001), type, op);
      }
    }
    check_reduce_scatter(comm, sizes(comm.size(), 0), dtype::f32, reduce_op::sum);
  });
}

TEST_P(Conformance, BroadcastComesFromAnyRoot) {
  run([](communicator& comm) {
    for (std::size_t root = 0; root < comm.size(); ++root) {
      check_broadcast(comm, root, 0);
      check_broadcast(comm, root, 1);
      check_broadcast(comm, root, 20'011);
    }
  });
}

TEST_P(Conformance, SendsArriveInOrderAndMixWithCollectives) {
  run([](communicator& comm) {
    if (comm.size() == 1) return;
    auto const next = (comm.rank() + 1) % comm.size();
    auto const before = (comm.rank() + comm.size() - 1) % comm.size();
    host_stream sending;
    std::vector<std::vector<std::byte>> letters;
    for (std::size_t const bytes : {std::size_t{4}, std::size_t{0}, std::size_t{4}, std::size_t{70'001}}) {
      letters.emplace_back(bytes, pattern(comm.rank(), next, letters.size()));
    }
    for (auto const& letter : letters) comm.send(letter, next, sending.ref());
    for (std::size_t i = 0; i < letters.size(); ++i) {
      std::vector<std::byte> got(letters[i].size());
      comm.recv(got, before, {}).wait();
      for (auto const byte : got) ASSERT_EQ(byte, pattern(before, comm.rank(), i));
    }
    synchronize(sending.ref(), patience);
    check_all_reduce(comm, 10, dtype::f32, reduce_op::sum);
  });
}

TEST_P(Conformance, NobodyPassesABarrierBeforeAllHaveCome) {
  // Ranks may be processes; all those of a machine read one clock.
  using moment = std::chrono::steady_clock::time_point;
  constexpr std::size_t rounds = 20;
  run([&](communicator& comm) {
    std::vector<moment> came(rounds);
    std::vector<moment> passed(rounds);
    for (std::size_t round = 0; round < rounds; ++round) {
      came[round] = std::chrono::steady_clock::now();
      comm.barrier({}).wait();
      passed[round] = std::chrono::steady_clock::now();
    }
    std::vector<moment> all(rounds * comm.size());
    comm.all_gather(std::as_bytes(std::span{came}), std::as_writable_bytes(std::span{all}),
                    sizes(comm.size(), rounds * sizeof(moment)), {})
        .wait();
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_GE(passed[i % rounds], all[i]) << "rank " << i / rounds;
  });
}

TEST_P(Conformance, ACallOnAHostStreamReturnsBeforeItsWorkIsDone) {
  run([](communicator& comm) {
    host_stream stream;
    std::latch open{1};
    enqueue(stream.ref(), [&] { open.wait(); });
    numbers mine{dtype::f32, 100};
    for (std::size_t i = 0; i < 100; ++i) mine.set(i, value_of(comm.rank(), i));
    auto const reduced = comm.all_reduce(mine.view(), 100, reduce_op::sum, stream.ref());
    EXPECT_FALSE(reduced.done().ready());
    open.count_down();
    reduced.wait();
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(mine.get(i), expected_of(comm.size(), i, reduce_op::sum));
  });
}

TEST_P(Conformance, CollectivesOnAHostStreamRunInTheirOrder) {
  run([](communicator& comm) {
    host_stream stream;
    constexpr std::size_t many = 30;
    std::vector<numbers> results(many, numbers{dtype::f32, 7});
    for (std::size_t k = 0; k < many; ++k) {
      for (std::size_t i = 0; i < 7; ++i) results[k].set(i, value_of(comm.rank(), i + k));
      comm.all_reduce(results[k].view(), 7, reduce_op::sum, stream.ref());
    }
    synchronize(stream.ref(), patience);
    for (std::size_t k = 0; k < many; ++k) {
      for (std::size_t i = 0; i < 7; ++i) {
        ASSERT_EQ(results[k].get(i), expected_of(comm.size(), i + k, reduce_op::sum));
      }
    }
  });
}

TEST_P(Conformance, SplitOrdersRanksByKeyAndLeavesTheParentWhole) {
  run([](communicator& comm) {
    // Even and odd ranks apart, each in reverse.
    auto const color = static_cast<std::uint32_t>(comm.rank() % 2);
    auto const part = comm.split(color, static_cast<std::uint32_t>(comm.size() - comm.rank()));
    auto const members = (comm.size() + 1 - color) / 2;
    ASSERT_EQ(part->size(), members);
    EXPECT_EQ(part->rank(), members - 1 - comm.rank() / 2);
    std::vector<std::uint64_t> ranks(members);
    std::uint64_t const own = comm.rank();
    part->all_gather(std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{ranks}),
                     sizes(members, sizeof own), {})
        .wait();
    for (std::size_t i = 0; i < members; ++i) EXPECT_EQ(ranks[i], (members - 1 - i) * 2 + color);
    auto const alone = part->split(static_cast<std::uint32_t>(part->rank()), 0);
    EXPECT_EQ(alone->size(), 1U);
    check_all_reduce(*alone, 5, dtype::f32, reduce_op::sum);
    check_all_reduce(*part, 50, dtype::f32, reduce_op::sum);
    check_all_reduce(comm, 50, dtype::f32, reduce_op::sum);
  });
}

TEST_P(Conformance, BytesAreCountedByTheFormulas) {
  run([](communicator& comm) {
    auto const n = comm.size();
    std::size_t expected = 0;
    std::size_t calls = 0;
    auto const check = [&](std::size_t sent) {
      expected += sent;
      ++calls;
      EXPECT_EQ(comm.stats().bytes_sent, expected) << "call " << calls;
      EXPECT_EQ(comm.stats().collectives, calls);
    };
    check_all_gather(comm, unequal(n, 7), false);
    check((n - 1) * unequal(n, 7)[comm.rank()]);
    check_all_to_all(comm, [](std::size_t from, std::size_t to) { return from + 2 * to; });
    std::size_t to_others = 0;
    for (std::size_t r = 0; r < n; ++r) to_others += r == comm.rank() ? 0 : comm.rank() + 2 * r;
    check(to_others);
    check_all_reduce(comm, 11 * n, dtype::f16, reduce_op::sum);
    check(2 * (n - 1) * 11 * 2);
    check_reduce_scatter(comm, sizes(n, 6), dtype::f32, reduce_op::sum);
    check((n - 1) * 6 * 4);
    check_broadcast(comm, 0, 13);
    check(comm.rank() == 0 ? (n - 1) * 13 : 0);
    comm.barrier({}).wait();
    check(0);
  });
}

TEST_P(Conformance, WrongArgumentsAreRefusedAndLeaveTheGroupUsable) {
  run([](communicator& comm) {
    auto const refused = [](auto call) {
      try {
        call();
        ADD_FAILURE() << "was accepted";
      } catch (error const& why) {
        EXPECT_EQ(why.code(), errc::invalid_argument) << why.what();
      }
    };
    std::vector<std::byte> some(8 * comm.size());
    std::vector<std::byte> out(8 * comm.size());
    sizes const bytes(comm.size(), 8);
    std::span const whole{some};
    refused([&] { comm.all_gather(whole.first(7), out, bytes, {}); });
    refused([&] { comm.all_gather(whole.first(8), std::span{out}.first(5), bytes, {}); });
    refused([&] { comm.all_gather(whole.first(8), out, sizes(comm.size() + 1, 8), {}); });
    refused([&] { comm.all_to_all(some, bytes, some, bytes, {}); });
    refused([&] { comm.all_to_all(whole.first(1), bytes, out, bytes, {}); });
    refused([&] { comm.broadcast(some, comm.size(), {}); });
    refused([&] { comm.send(some, comm.rank(), {}); });
    refused([&] { comm.recv(some, comm.size(), {}); });
    refused([&] {
      comm.reduce_scatter({some.data(), dtype::f32}, {out.data(), dtype::f16}, sizes(comm.size(), 1), reduce_op::sum,
                          {});
    });
    check_all_reduce(comm, 10, dtype::f32, reduce_op::sum);
    EXPECT_EQ(comm.stats().collectives, 1U);
  });
}

// Public report 27 (vllm PR 25892): a collective hung when sizes varied from call to call.
TEST_P(OneWorld, AThousandCollectivesOfRandomSizesEndRight) {
  constexpr unsigned seed = 27;
  SCOPED_TRACE("seed " + std::to_string(seed));
  run_all(GetParam(), 3, [](communicator& comm) {
    std::mt19937 random{seed};  // the same draws on every rank
    auto const draw = [&](std::size_t most) { return std::size_t{random()} % (most + 1); };
    host_stream stream;
    for (int i = 0; i < 1000; ++i) {
      auto const on = draw(1) == 0 ? stream_ref{} : stream.ref();
      auto const kind = draw(4);
      auto const scale = draw(3) == 0 ? std::size_t{3'000} : std::size_t{40};
      auto const type = all_dtypes.at(draw(2));
      if (kind == 0) {
        check_all_gather(comm, {draw(scale), draw(scale), draw(scale)}, draw(1) == 0, on);
      } else if (kind == 1) {
        auto const a = draw(scale);
        auto const b = draw(scale);
        check_all_to_all(
            comm, [&](std::size_t from, std::size_t to) { return (from * a + to * b) % (scale + 1); }, on);
      } else if (kind == 2) {
        check_all_reduce(comm, draw(scale), type, reduce_op::sum, on);
      } else if (kind == 3) {
        check_reduce_scatter(comm, {draw(scale), draw(scale), draw(scale)}, type, reduce_op::max, on);
      } else {
        auto const root = draw(2);
        check_broadcast(comm, root, draw(scale), on);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

}  // namespace
}  // namespace gradwire::test
