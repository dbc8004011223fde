// Edges that several nodes share, where each node is a process that emulates its own links.
//
// A node's model (Shaper) knows its own messages only. For a shared edge, every node publishes its
// present rate and whether it would send more if it could, and reads those of the others. From
// these each computes its share of the edge: the weighted max-min share that one model of all nodes
// would give it (maxmin.h), with a short delay. Nodes publish again and again while they send, so one that
// has not done so for a while was killed or stopped, and counts no more. The table is a file that the
// processes map into memory, with a row per edge and a slot per node in each row.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "core/types.h"

namespace geomx::io {

inline constexpr std::size_t kClasses = 2;  // reliable and best-effort messages

// One node's use of an edge, by class.
struct Use {
  std::array<double, kClasses> load{};     // bytes/s
  std::array<double, kClasses> weight{};   // of its connections with data to send
  std::array<double, kClasses> hungry{};   // 1: this edge limits them
};

class UsageTable {
 public:
  // Maps the file at `path`, which must initially hold FileBytes(rows, slots) zeros. Throws
  // std::runtime_error if it cannot be mapped, std::invalid_argument if it is too small or there is
  // no such slot.
  UsageTable(const std::string& path, std::size_t slots, std::size_t slot);
  ~UsageTable();
  UsageTable(const UsageTable&) = delete;
  UsageTable& operator=(const UsageTable&) = delete;

  static std::size_t FileBytes(std::size_t rows, std::size_t slots);
  std::size_t rows() const { return rows_; }

  // A use counts for this long after it was written: much longer than a thread that sends is kept from
  // writing it again.
  static constexpr Time kLasts = kSecond / 2;

  // `now`: of the clock that all nodes share.
  void Write(std::size_t row, const Use& own, Time now);

  // This node's share, in bytes/s, of an edge of `capacity`. `own`: the node's own use.
  double Share(std::size_t row, double capacity, const Use& own, Time now) const;

 private:
  struct Slot {
    std::array<std::atomic<double>, kClasses> load, weight, hungry;
    std::atomic<Time> written;
  };
  const Slot& At(std::size_t row, std::size_t slot) const { return table_[row * slots_ + slot]; }

  std::size_t slots_, slot_;
  std::size_t rows_ = 0;
  Slot* table_ = nullptr;
};

struct Demand {
  double weight = 1.0;
  double most = 0.0;  // bytes/s that it can use
};

// The weighted max-min fair share of `capacity` of a user of `weight` with unlimited demand, beside
// `others`.
double FairShare(double capacity, double weight, std::vector<Demand> others);

}  // namespace geomx::io
