#include "tests/comm/mpi_world.hpp"

#include <cstdio>
#include <cstdlib>

#include <gradwire/mpi.hpp>

namespace gradwire::test {
namespace {

class failures_only final : public testing::EmptyTestEventListener {
  void OnTestPartResult(testing::TestPartResult const& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "MPI rank %d: %s:%d: %s\n", mpi_environment::rank(), result.file_name(), result.line_number(),
                 result.message());
  }
};

auto const* const registered = testing::AddGlobalTestEnvironment(new mpi_environment);

}  // namespace

void mpi_environment::SetUp() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before threads
  int const wanted = std::getenv("GRADWIRE_TEST_ONE_THREAD") == nullptr ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, wanted, &level);
  ASSERT_EQ(level, wanted);
  if (rank() == 0) return;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new failures_only);
}

void mpi_environment::TearDown() { MPI_Finalize(); }

int mpi_environment::rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int mpi_environment::size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

mpi_world::mpi_world(std::size_t size, std::chrono::milliseconds timeout) : world{size}, timeout_{timeout} {
  if (static_cast<int>(size) > mpi_environment::size()) {
    throw std::runtime_error{"this test needs mpirun -n " + std::to_string(size) + " or more"};
  }
  bool const member = mpi_environment::rank() < static_cast<int>(size);
  MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, mpi_environment::rank(), &ranks_);
}

mpi_world::~mpi_world() {
  if (ranks_ != MPI_COMM_NULL) MPI_Comm_free(&ranks_);
}

std::unique_ptr<communicator> mpi_world::join(std::size_t rank) {
  meet();  // the group's timeout may be short, and says nothing of how far apart the processes are
  auto result = make_mpi({.over = MPI_Comm_c2f(ranks_), .timeout = timeout_});
  EXPECT_EQ(result->rank(), rank);
  return result;
}

void mpi_world::meet() { MPI_Barrier(ranks_); }

std::vector<std::size_t> mpi_world::ranks_here() const {
  if (ranks_ == MPI_COMM_NULL) return {};
  return {static_cast<std::size_t>(mpi_environment::rank())};
}

void mpi_world::complete(outcomes& results) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    // -1, or the code and the text of the error.
    int code = results[r] ? static_cast<int>(results[r]->code()) : -1;
    std::string text = results[r] ? results[r]->what() : "";
    auto const root = static_cast<int>(r);
    MPI_Bcast(&code, 1, MPI_INT, root, MPI_COMM_WORLD);
    int length = static_cast<int>(text.size());
    MPI_Bcast(&length, 1, MPI_INT, root, MPI_COMM_WORLD);
    text.resize(static_cast<std::size_t>(length));
    MPI_Bcast(text.data(), length, MPI_CHAR, root, MPI_COMM_WORLD);
    if (code >= 0) results[r] = error{static_cast<errc>(code), text};
  }
}

transport_case mpi_case() {
  return {"mpi", [](std::size_t size, std::chrono::milliseconds timeout) {
            return std::make_unique<mpi_world>(size, timeout);
          }};
}

}  // namespace gradwire::test
