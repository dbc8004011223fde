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
  const std::shared_ptr<std::byte> state(queue.Take(bytes), give), term(queue.Take(bytes), give);
  queue.Clear(state.get(), bytes);
  queue.Clear(term.get(), bytes);
  if (bytes > 0) std::memset(host.get(), 0, bytes);
  Timings timings;
  for (std::uint64_t repeat = 0; repeat <= repeats; ++repeat) {
    const double in = Seconds(queue, [&] { queue.Copy(there.get(), host.get(), bytes); });
    const double encode = Seconds(queue, [&] {
      queue.Narrow(reinterpret_cast<const float*>(there.get()),
                   reinterpret_cast<std::uint16_t*>(half.get()), elements);
    });
    const double out = Seconds(queue, [&] { queue.Copy(host.get(), there.get(), bytes); });
    const double update = Seconds(queue, [&] {
      queue.Momentum({.rate = 0.1f, .wd = 0, .rescale = 1, .clip = 1}, 0.9f,
                     reinterpret_cast<float*>(there.get()),
                     reinterpret_cast<const float*>(term.get()),
                     reinterpret_cast<float*>(state.get()), elements);
    });
    if (repeat == 0) continue;
    timings.to_device.push_back(in);
    timings.encode.push_back(encode);
    timings.to_host.push_back(out);
    timings.update.push_back(update);
  }
  return timings;
}

}  // namespace geomx::kernels
