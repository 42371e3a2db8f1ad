// Four ranks (threads here; make_gloo() gives processes) average a gradient of four numbers.
#include <cstdio>
#include <vector>

#include <gradwire/gradwire.hpp>

int main() {
  gradwire::run_ranks(4, [](gradwire::communicator& comm) {
    gradwire::reducer reducer{comm, {{.name = "weights", .shape = {4}}}, {}};
    auto* const gradient = static_cast<float*>(reducer.gradient(0));
    for (int i = 0; i < 4; ++i) gradient[i] = static_cast<float>(comm.rank() + 1);  // 1, 2, 3, 4
    reducer.mark_ready(0);
    reducer.synchronize();
    if (comm.rank() == 0) {
      std::printf("mean over 4 ranks: %g %g %g %g\n", static_cast<double>(gradient[0]),
                  static_cast<double>(gradient[1]), static_cast<double>(gradient[2]), static_cast<double>(gradient[3]));
    }
  });
  return 0;
}
