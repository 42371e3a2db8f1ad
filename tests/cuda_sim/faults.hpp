#pragma once
//! Programs with one fault each, for the simulator to find.

#include <cstdint>
#include <vector>

namespace cuda_sim {

enum class plant : std::uint8_t {
  nothing,
  // in a kernel
  missing_barrier,
  missing_loop_barrier,
  missing_warp_sync,
  blocks_write_one_word,
  unwritten_shared_memory,
  shared_array_overrun,
  dynamic_shared_overrun,
  plain_shared_overrun,
  global_write_past_end,
  global_read_past_end,
  misaligned_vector,
  divergent_barrier,
  barrier_after_return,
  lanes_missing,
  lane_left_out,
  shuffle_from_outside,
  spin_on_another_block,
  // around kernels
  host_reads_device_memory,
  host_pointer_to_kernel,
  host_pointer_in_struct,
  memory_of_another_device,
  stream_of_another_device,
  default_stream,
  pageable_copy,
  copy_past_end,
  copy_the_wrong_way,
  use_after_free,
  use_before_allocation,
  freed_twice,
  synchronize_in_capture,
  event_never_recorded,
  // between streams
  consumer_does_not_wait,
  writer_overtakes_reader,
  host_does_not_wait
};

//! Runs a small program with this fault in it; gives what it computed, 64 numbers, every one 6 when nothing went wrong.
std::vector<float> run(plant fault);

}  // namespace cuda_sim
