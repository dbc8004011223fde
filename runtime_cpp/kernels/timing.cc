#include "kernels/timing.h"

#include <chrono>
#include <cstring>

namespace geomx::kernels {
namespace {

template <class Work>
double Seconds(Queue& queue, Work work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  work();
  queue.Wait();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Timings TimeQueue(Queue& queue, std::uint64_t elements, std::uint64_t repeats) {
  const std::size_t bytes = elements * sizeof(float);
  const auto give = [&](std::byte* memory) { queue.Give(memory); };
  const auto give_pinned = [&](std::byte* memory) { queue.GivePinned(memory); };
  const std::shared_ptr<std::byte> host(queue.TakePinned(bytes), give_pinned);
  const std::shared_ptr<std::byte> there(queue.Take(bytes), give);
  const std::shared_ptr<std::byte> half(queue.Take(elements * sizeof(std::uint16_t)), give);
  if (bytes > 0) std::memset(host.get(), 0, bytes);
  Timings timings;
  for (std::uint64_t repeat = 0; repeat <= repeats; ++repeat) {
    const double in = Seconds(queue, [&] { queue.Copy(there.get(), host.get(), bytes); });
    const double encode = Seconds(queue, [&] {
      queue.Narrow(reinterpret_cast<const float*>(there.get()),
                   reinterpret_cast<std::uint16_t*>(half.get()), elements);
    });
    const double out = Seconds(queue, [&] { queue.Copy(host.get(), there.get(), bytes); });
    if (repeat == 0) continue;
    timings.to_device.push_back(in);
    timings.encode.push_back(encode);
    timings.to_host.push_back(out);
  }
  return timings;
}

}  // namespace geomx::kernels
