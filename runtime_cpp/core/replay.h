// Replays a journal: repeats its calls on a fresh node, which then has the state of the recorded
// one.
//
// A replay makes the calls that recorded_node.h recorded, waits for the device where the node was
// resumed, and takes messages in their recorded order. Records about links, the emulated network
// and the application go to a handler: the driver's, or a test's.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/node.h"
#include "core/records.h"
#include "core/snapshot.h"

namespace geomx {

class Replay {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnBegin(const JournalBegin& begin) { (void)begin; }
    virtual void OnTaken(NodeId peer, const Message& message) = 0;  // out of the node's queues
    virtual void OnLinked(NodeId peer, Message message) = 0;  // and on its link; it may have left
    virtual void OnArrived(NodeId peer) = 0;                  // a numbered message
    virtual void OnReceived(NodeId peer, std::uint32_t count) = 0;
    virtual void OnRenewed(NodeId peer, const Renewal& renewal) = 0;
    virtual void OnLinkMade(NodeId peer) = 0;
    virtual void OnLinkDown(NodeId peer, const std::string& reason) = 0;
    virtual void OnReady() = 0;
    virtual void OnEvent(Event event, Time now) = 0;
    // The application has made a call: a worker's verb about the key `number`, a report to the
    // coordinator `number`, or a departure.
    virtual void OnVerb(RecordKind kind, std::uint32_t number) { (void)kind, (void)number; }
    // Reads what OutsideNode::Exchange has written.
    virtual void OnSnapshot(Archive& archive) = 0;
    // The application has noted where it is.
    virtual void OnNote(std::string text, std::vector<std::string> state) { (void)text, (void)state; }
  };
  using Held = geomx::Held;
  using Sending = geomx::Sending;

  // Both outlive this. REQUIRES: `node` is fresh; AssumeStarted may have been called.
  Replay(Node& node, Handler& handler) : node_(node), handler_(handler) {}

  // Throws JournalError if the record is invalid, or if the node behaves differently from the
  // recorded one.
  void Apply(std::span<const std::byte> body, Payload payload);

  // The node's clock is ahead by this of that by which the records were made (standby.h).
  void SetAhead(Time ahead) { ahead_ = ahead; }

  std::uint32_t restarts() const { return restarts_; }  // recorded in the journal
  std::uint64_t records() const { return records_; }
  // The work that the node has done since the last call.
  Work TakeWork() { return std::exchange(work_, {}); }

  // ---- what is left to do after the last record ----
  std::vector<Held> TakeHeld();          // in the order of arrival
  std::vector<Sending> TakeUnderWay();   // of each lane, the oldest first
  DeviceWork::Ends TakeDeviceWork() { return {ends_.begin(), ends_.end()}; }

 private:
  void Apply(RecordReader& record, Payload payload);
  Time TimeIn(RecordReader& record) const { return record.Get<Time>() + ahead_; }
  void AddState(bool more, const Payload& payload);
  void ApplyVerb(RecordKind kind, RecordReader& record);
  void Declare(Key key, RecordReader& record);
  void ApplySends(RecordReader& record);
  Message Poll(NodeId peer, Lane lane);
  void Settle(NodeId peer, Lane lane, Fate fate, Message message);
  void Follow(Time now);
  void ForgetHeld(NodeId from);
  void Resume(Time now);
  void Initialise(RecordReader& record);
  // The values that were recorded before a call; empty if there are none, as for a phantom.
  Buffer TakeValue(std::uint64_t elements);
  void Load(RecordReader& record);
  Message ReadMessage(RecordReader& record, Payload payload) const;

  Node& node_;
  Handler& handler_;
  std::map<std::pair<Time, std::uint64_t>, Held> held_;  // by time, then order of arrival
  std::map<std::pair<NodeId, Lane>, std::deque<Message>> under_way_;
  std::deque<std::shared_ptr<kernels::Mark>> ends_;  // markers of work not resumed after yet
  std::vector<std::string> state_;  // of the next note, or the value of the next verb
  bool more_ = false;               // of the last part of it
  Time ahead_ = 0;
  Time now_ = 0;                // of the latest record that has a time
  std::uint64_t records_ = 0;
  bool fresh_ = true;           // no call has been made to the node
  std::uint32_t restarts_ = 0;
  Work work_;
};

}  // namespace geomx
