// The class codec around the functions: what it checks, where it runs.
#include <memory_resource>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

namespace gradwire {
namespace {

template <class F>
void fails(errc code, std::string_view part, F&& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown, expected: " << part;
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), code) << failure.what();
    EXPECT_NE(std::string_view{failure.what()}.find(part), std::string_view::npos) << failure.what();
  }
}

struct Codec : testing::Test {
  codec bf16 = codec::parse("bf16");
  std::vector<float> x{1, 2, 3};
  std::vector<float> residual{0, 0, 0};
  segment whole{0, 0, 3, 0, 0};
  std::vector<std::byte> payload = std::vector<std::byte>(8);
};

TEST_F(Codec, NamesTheSizeThatAPayloadMustHave) {
  std::span const wrong = std::span{payload}.first(4);
  std::span const one{&whole, 1};
  auto const bytes = "takes 8 bytes, not 4";
  fails(errc::invalid_argument, bytes, [&] { bf16.encode({}, {x.data()}, one, {}, wrong); });
  fails(errc::invalid_argument, bytes,
        [&] { bf16.encode_with_feedback({}, {x.data()}, residual.data(), one, {}, wrong); });
  fails(errc::corrupt_payload, bytes, [&] { bf16.decode({}, wrong, one, {x.data()}); });
  fails(errc::corrupt_payload, bytes, [&] { bf16.decode_add({}, wrong, one, {x.data()}); });
  std::byte const* const source = payload.data();
  fails(errc::invalid_argument, bytes, [&] { bf16.reduce_encode({}, {&source, 1}, 1, nullptr, one, {}, wrong); });
  fails(errc::invalid_argument, "no payloads", [&] { bf16.reduce_encode({}, {}, 1, nullptr, one, {}, payload); });
}

TEST_F(Codec, RefusesSegmentsThatBeginBesideTheGranule) {
  whole.first = 1;
  fails(errc::invalid_argument, "segment 0 begins at element 1 of its tensor: cut at multiples of 2", [&] {
    bf16.encode({}, {x.data()}, {&whole, 1}, {}, payload);
  });
  codec_entry entry = bf16.entry();
  entry.granule = [](param_values const&) { return std::size_t{0}; };
  fails(errc::invalid_argument, "whole tensors only", [&] {
    codec(entry, {}).encode({}, {x.data()}, {&whole, 1}, {}, payload);
  });
}

TEST_F(Codec, IsUnsupportedOnADeviceItHasNoFunctionsFor) {
  codec_entry without = bf16.entry();
  without.cuda = nullptr;
  codec const cpu_only{without, {}};
  exec on;
  on.kind = device_kind::cuda;
  std::span const one{&whole, 1};
  std::byte const* const source = payload.data();
  auto const text = "bf16 has no CUDA";
  fails(errc::unsupported, text, [&] { cpu_only.encode(on, {x.data()}, one, {}, payload); });
  fails(errc::unsupported, text,
        [&] { cpu_only.encode_with_feedback(on, {x.data()}, residual.data(), one, {}, payload); });
  fails(errc::unsupported, text, [&] { cpu_only.decode(on, payload, one, {x.data()}); });
  fails(errc::unsupported, text, [&] { cpu_only.decode_add(on, payload, one, {x.data()}); });
  fails(errc::unsupported, text, [&] { cpu_only.reduce_encode(on, {&source, 1}, 1, nullptr, one, {}, payload); });
}

TEST_F(Codec, RunsInOrderOnAHostStreamAndReportsItsFailureThere) {
  host_stream stream;
  exec const on{.stream = stream.ref()};
  std::vector<float> out(3);
  std::byte const* const source = payload.data();
  std::vector<std::byte> sum(8);
  std::span const one{&whole, 1};
  bf16.encode(on, {x.data()}, one, {}, payload);
  {
    std::vector<std::byte const*> sources{source, source};  // copied, so it may go at once
    bf16.reduce_encode(on, sources, 0.25f, nullptr, one, {}, sum);
  }
  bf16.decode(on, sum, one, {out.data()});
  bf16.decode_add(on, payload, one, {out.data()}, 2);
  synchronize(on.stream);
  EXPECT_EQ(out, (std::vector<float>{2.5f, 5, 7.5f}));

  codec_entry broken = bf16.entry();
  broken.cpu.decode = [](exec const&, param_values const&, std::byte const*, std::span<segment const>, elements,
                         float) {
    throw error{errc::corrupt_payload, "broken"};
  };
  codec const fails_later{broken, {}};
  EXPECT_NO_THROW(fails_later.decode(on, payload, one, {out.data()}));
  fails(errc::corrupt_payload, "broken", [&] { synchronize(on.stream); });
}

TEST_F(Codec, TakesScratchFromTheMemoryItIsGiven) {
  codec_entry generic = bf16.entry();
  generic.reference.encode_with_feedback = nullptr;
  generic.cpu.encode_with_feedback = nullptr;
  exec const on{.memory = std::pmr::null_memory_resource()};
  fails(errc::out_of_memory, "bytes", [&] {
    codec(generic, {}).encode_with_feedback(on, {x.data()}, residual.data(), {&whole, 1}, {}, payload);
  });
}

TEST_F(Codec, FallsBackFromFastToReferenceToGeneric) {
  codec_entry only_basics = bf16.entry();
  only_basics.cpu = {};
  only_basics.reference = {.encode = bf16.entry().reference.encode, .decode = bf16.entry().reference.decode};
  std::vector<float> const grad{1.001f, 2, 3};
  std::vector<std::byte> generic(8);
  std::vector<float> kept = residual;
  codec(only_basics, {}).encode_with_feedback({}, {grad.data()}, kept.data(), {&whole, 1}, {}, generic);
  bf16.encode_with_feedback({}, {grad.data()}, residual.data(), {&whole, 1}, {}, payload);
  EXPECT_EQ(generic, payload);
  EXPECT_EQ(kept, residual);
  EXPECT_EQ(kept[0], 1.001f - 1.0f);
}

}  // namespace
}  // namespace gradwire
