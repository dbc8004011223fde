// Replay protection of datagrams by their numbers, of which a window of the latest is kept.
#pragma once

#include <bitset>
#include <cstdint>

namespace geomx::io {

class ReplayWindow {
 public:
  static constexpr std::uint64_t kRemembered = 4096;

  // Returns true if `number` is new, and records it. Call it for authentic datagrams only. Numbers
  // older than the window count as seen.
  bool Accept(std::uint64_t number) {
    if (number >= next_) {
      if (number - next_ >= kRemembered) {
        seen_.reset();
      } else {
        for (std::uint64_t each = next_; each < number; ++each) seen_.reset(each % kRemembered);
      }
      next_ = number + 1;
      seen_.set(number % kRemembered);
      return true;
    }
    if (next_ - number > kRemembered || seen_.test(number % kRemembered)) return false;
    seen_.set(number % kRemembered);
    return true;
  }

 private:
  std::uint64_t next_ = 0;  // one more than the largest
  std::bitset<kRemembered> seen_;
};

}  // namespace geomx::io
