// What the scheduler knows of each member's processes: where they are, which have been lost and have
// come back, and which stand by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/member_change.h"
#include "core/message.h"
#include "core/node_config.h"
#include "core/types.h"

namespace geomx {

// Bytes of a text that one member says and all others are told: their messages must not become too long.
inline constexpr std::size_t kMostText = 1024;

// Why the address with which a member joins cannot be told to others; empty if it can.
inline std::string WrongAddress(const std::string& address) {
  if (!IsLine(address)) return "a join whose address is empty or has control characters";
  return address.size() > kMostText ? "a join whose address is too long" : "";
}

// Cuts a reason, between two characters of UTF-8.
inline void Shorten(std::string& reason) {
  if (reason.size() <= kMostText) return;
  std::size_t end = kMostText;
  while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xc0) == 0x80) --end;
  reason.resize(end);
}

class MemberList {
 public:
  std::uint32_t epoch() const { return epoch_; }  // of the latest change

  // ---- processes that have joined ----
  bool Has(NodeId member) const { return addresses_.contains(member); }
  std::size_t size() const { return addresses_.size(); }
  const std::string& AddressOf(NodeId member) const { return addresses_.at(member); }
  void Join(NodeId member, const std::string& address, std::uint32_t incarnation) {
    addresses_[member] = address;
    incarnations_[member] = incarnation;
  }
  // The roster: a line for each of `peers` that has joined.
  std::string Lines(const std::vector<Peer>& peers) const {
    std::string lines;
    for (const Peer& each : peers) {
      if (!Has(each.id)) continue;
      lines += each.name + "\t" + addresses_.at(each.id) + "\t" +
               std::to_string(incarnations_.at(each.id)) + "\n";
    }
    return lines;
  }

  // ---- members that are lost and come back ----
  bool IsAbsent(NodeId member) const { return absent_.contains(member); }
  std::size_t absent() const { return absent_.size(); }
  const std::string& WhyAbsent(NodeId member) const { return absent_.at(member).reason; }
  bool IsJoining(NodeId member) const { return joining_.contains(member); }
  // Whether this process of a member has joined, and is not lost: it says so once.
  bool Repeats(NodeId member, std::uint32_t incarnation) const {
    const auto known = incarnations_.find(member);
    const bool there = IsJoining(member) || !IsAbsent(member);
    return there && known != incarnations_.end() && known->second == incarnation;
  }
  bool IsBack(NodeId member) const { return back_.contains(member); }  // its process is not the first
  // It will join later.
  void Await(const Peer& member) {
    absent_[member.id] = {.who = member.id, .name = member.name, .reason = "it has not joined yet"};
  }
  MemberChange Lose(const Peer& member, const std::string& reason) {
    back_.erase(member.id);
    joining_.erase(member.id);
    return absent_[member.id] = {.epoch = ++epoch_,
                                 .who = member.id,
                                 .incarnation = incarnations_[member.id],
                                 .name = member.name,
                                 .reason = reason};
  }
  // A new process of a lost member has joined.
  void JoinLate(const Peer& member, const std::string& address, std::uint32_t incarnation) {
    Join(member.id, address, incarnation);
    joining_[member.id] = {.who = member.id,
                           .back = true,
                           .incarnation = incarnation,
                           .name = member.name,
                           .address = address};
  }
  // That process takes the member's place. REQUIRES: IsJoining.
  MemberChange Return(NodeId member) {
    MemberChange change = std::move(joining_.extract(member).mapped());
    change.epoch = ++epoch_;
    absent_.erase(member);
    return back_[member] = change;
  }
  // The process of `standby` takes the place of that of `member`, with its state.
  MemberChange Move(const Peer& member, NodeId standby, const std::string& reason) {
    std::uint32_t& incarnation = incarnations_[member.id];
    Join(member.id, addresses_[standby], std::max(incarnation, std::uint32_t{1}) + 1);
    return back_[member.id] = {.epoch = ++epoch_,
                               .who = member.id,
                               .back = true,
                               .moved = true,
                               .incarnation = incarnation,
                               .name = member.name,
                               .reason = reason,
                               .address = addresses_[member.id]};
  }
  // Whether a report is about an earlier process of a member than the one that takes part.
  bool IsOld(NodeId member, std::uint32_t incarnation) const {
    const auto found = back_.find(member);
    return found != back_.end() && found->second.incarnation != incarnation;
  }
  // The latest change of each member that is lost or has come back, by epoch.
  std::map<std::uint32_t, MemberChange> Changes() const {
    std::map<std::uint32_t, MemberChange> changes;
    for (const auto* members : {&absent_, &back_}) {
      for (const auto& [id, change] : *members) changes[change.epoch] = change;
    }
    changes.erase(0);  // members that have not joined yet, as the experiment says
    return changes;
  }

  void Exchange(Archive& archive) {
    archive(epoch_, addresses_, incarnations_, absent_, back_, joining_);
  }

 private:
  std::uint32_t epoch_ = 0;
  std::map<NodeId, std::string> addresses_;
  std::map<NodeId, std::uint32_t> incarnations_;  // as the driver counts processes
  std::map<NodeId, MemberChange> absent_, back_, joining_;
};

// Standbys and their global servers.
class StandbyPairs {
 public:
  explicit StandbyPairs(const std::vector<std::pair<NodeId, NodeId>>& pairs)
      : pairs_(pairs.begin(), pairs.end()) {}

  bool HasOne(NodeId server) const { return pairs_.contains(server); }
  // The global server of a standby; nothing if it has none, or has taken its place.
  std::optional<NodeId> ServerOf(NodeId standby) const {
    for (const auto& [server, its] : pairs_) {
      if (its == standby) return server;
    }
    return std::nullopt;
  }
  // Which of two members that have lost their connection the run does without: a standby, or else a
  // server that has one.
  std::optional<NodeId> Spare(NodeId one, NodeId other) const {
    for (const NodeId each : {one, other}) {
      if (ServerOf(each)) return each;
    }
    for (const NodeId each : {one, other}) {
      if (HasOne(each)) return each;
    }
    return std::nullopt;
  }
  // Returns the standby of a server, which has none from now on. REQUIRES: HasOne.
  NodeId Take(NodeId server) { return pairs_.extract(server).mapped(); }
  void Exchange(Archive& archive) { archive(pairs_); }

 private:
  std::map<NodeId, NodeId> pairs_;  // (global server, standby)
};

}  // namespace geomx
