#include "core/records.h"

namespace geomx {

std::optional<Time> TimeOf(Bytes body) {
  RecordReader record(body);
  switch (record.Get<RecordKind>()) {
    case RecordKind::kMessage:
    case RecordKind::kHear:
    case RecordKind::kLinkLost:
    case RecordKind::kLinkMade:
    case RecordKind::kLinkDown:
    case RecordKind::kInit:
    case RecordKind::kSubmit:
    case RecordKind::kRequest: record.Get<std::uint32_t>(); break;  // a node or a key
    case RecordKind::kRelease:
    case RecordKind::kTimeout:
    case RecordKind::kReady:
    case RecordKind::kResume:
    case RecordKind::kInitialise:
    case RecordKind::kInstruct:
    case RecordKind::kLeave:
    case RecordKind::kBarrier:
    case RecordKind::kCommand:
    case RecordKind::kSnapshot: break;
    default: return std::nullopt;
  }
  return record.Get<Time>();
}

void JournalBegin::Write(JournalOut& out) const {
  RecordWriter record(RecordKind::kBegin);
  record.Text(name).Text(address).Text(experiment);
  record.Put(static_cast<std::uint32_t>(roster.size()));
  for (const Member& member : roster) {
    record.Text(member.name).Text(member.address).Put(member.incarnation);
  }
  record.Put(static_cast<std::uint32_t>(links.size()));
  for (const Counts& link : links) record.Put(link.peer).Put(link.sent).Put(link.received);
  record.Put(snapshot);
  out.Add(record.body(), {});
}

JournalBegin JournalBegin::Read(std::span<const std::byte> body) {
  RecordReader record(body);
  if (record.Get<RecordKind>() != RecordKind::kBegin) throw JournalError("it does not begin as journals do");
  JournalBegin begin;
  begin.name = record.Text();
  begin.address = record.Text();
  begin.experiment = record.Text();
  for (auto count = record.Get<std::uint32_t>(); count > 0; --count) {
    Member& member = begin.roster.emplace_back();
    member.name = record.Text();
    member.address = record.Text();
    member.incarnation = record.Get<std::uint32_t>();
  }
  for (auto count = record.Get<std::uint32_t>(); count > 0; --count) {
    Counts& link = begin.links.emplace_back();
    link.peer = record.Get<NodeId>();
    link.sent = record.Get<std::uint32_t>();
    link.received = record.Get<std::uint32_t>();
  }
  begin.snapshot = record.Get<bool>();
  record.End();
  return begin;
}

}  // namespace geomx
