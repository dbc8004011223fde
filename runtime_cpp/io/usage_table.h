// Edges that several nodes send over, when nodes are processes that emulate their own links each.
//
// A node's model (Shaper) knows its own messages alone. Of an edge that others send over too, every
// node writes down what it sends over it now and whether it would send more if it could, and reads
// what the others wrote. From that each works out its own part of the edge: the weighted max-min share
// that one model of all of them would give it (maxmin.h), a moment later. What is written lies in a
// file that the processes map into their memory, a row for each edge and in it a slot for each node.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace geomx::io {

inline constexpr std::size_t kClasses = 2;  // reliable messages, and those that take what is left

// What one node does with an edge, by class.
struct Use {
  std::array<double, kClasses> load{};     // bytes/s
  std::array<double, kClasses> weight{};   // of its connections that have something to send
  std::array<double, kClasses> hungry{};   // 1: this edge is what limits them
};

class UsageTable {
 public:
  // The file at `path`, which has FileBytes(rows, slots) zeros at first. Throws std::runtime_error if
  // it cannot be had, std::invalid_argument if it is too small or there is no such slot.
  UsageTable(const std::string& path, std::size_t slots, std::size_t slot);
  ~UsageTable();
  UsageTable(const UsageTable&) = delete;
  UsageTable& operator=(const UsageTable&) = delete;

  static std::size_t FileBytes(std::size_t rows, std::size_t slots);
  std::size_t rows() const { return rows_; }

  void Write(std::size_t row, const Use& own);

  // Bytes/s of an edge of `capacity` that are this node's, whose own use is `own`.
  double Share(std::size_t row, double capacity, const Use& own) const;

 private:
  struct Slot {
    std::array<std::atomic<double>, kClasses> load, weight, hungry;
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

// The part of `capacity` that a user of `weight` gets which can use all of it, beside `others`:
// weighted max-min fairness on one edge.
double FairShare(double capacity, double weight, std::vector<Demand> others);

}  // namespace geomx::io
