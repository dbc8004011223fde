#include "io/usage_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace geomx::io {

double FairShare(double capacity, double weight, std::vector<Demand> others) {
  if (capacity == std::numeric_limits<double>::infinity()) return capacity;
  std::sort(others.begin(), others.end(), [](const Demand& a, const Demand& b) {
    return a.most * b.weight < b.most * a.weight;
  });
  double all = weight;
  for (const Demand& other : others) all += other.weight;
  for (const Demand& other : others) {
    if (other.most * all > capacity * other.weight) break;  // limited to its share as well
    capacity -= other.most;
    all -= other.weight;
  }
  return std::max(capacity, 0.0) * weight / all;
}

UsageTable::UsageTable(const std::string& path, std::size_t slots, std::size_t slot)
    : slots_(slots), slot_(slot) {
  static_assert(std::atomic<double>::is_always_lock_free && std::atomic<Time>::is_always_lock_free);
  if (slot >= slots) throw std::invalid_argument("there is no such slot in the shared links");
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw std::runtime_error("cannot open the file of shared links: " + path);
  struct stat status {};
  void* memory = MAP_FAILED;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
    memory = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE,
                  MAP_SHARED, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot read the file of shared links: " + path);
  table_ = static_cast<Slot*>(memory);
  rows_ = static_cast<std::size_t>(status.st_size) / FileBytes(1, slots);
}

UsageTable::~UsageTable() { munmap(table_, FileBytes(rows_, slots_)); }

std::size_t UsageTable::FileBytes(std::size_t rows, std::size_t slots) {
  return rows * slots * sizeof(Slot);
}

void UsageTable::Write(std::size_t row, const Use& own, Time now) {
  Slot& slot = table_[row * slots_ + slot_];
  for (std::size_t of = 0; of < kClasses; ++of) {
    slot.load[of].store(own.load[of], std::memory_order_relaxed);
    slot.weight[of].store(own.weight[of], std::memory_order_relaxed);
    slot.hungry[of].store(own.hungry[of], std::memory_order_relaxed);
  }
  slot.written.store(now, std::memory_order_relaxed);
}

double UsageTable::Share(std::size_t row, double capacity, const Use& own, Time now) const {
  std::array<std::vector<Demand>, kClasses> others;
  double urgent = own.load[0];  // of all nodes together
  for (std::size_t other = 0; other < slots_; ++other) {
    if (other == slot_) continue;
    const Slot& slot = At(row, other);
    if (slot.written.load(std::memory_order_relaxed) + kLasts < now) continue;
    for (std::size_t of = 0; of < kClasses; ++of) {
      const double weight = slot.weight[of].load(std::memory_order_relaxed);
      if (weight <= 0.0) continue;
      const double load = slot.load[of].load(std::memory_order_relaxed);
      const bool hungry = slot.hungry[of].load(std::memory_order_relaxed) > 0.0;
      if (of == 0) urgent += load;
      others[of].push_back({weight, hungry ? std::numeric_limits<double>::infinity() : load});
    }
  }
  const double first =
      own.weight[0] > 0.0 ? FairShare(capacity, own.weight[0], std::move(others[0])) : 0.0;
  if (own.weight[1] <= 0.0 || own.hungry[0] > 0.0) return first;
  const double rest = std::max(capacity - urgent, 0.0);
  return own.load[0] + FairShare(rest, own.weight[1], std::move(others[1]));
}

}  // namespace geomx::io
