#pragma once
// Config sections of training objectives (train/config/objective_table.h), which their folders and plug-ins define: a
// value of each section type, or none.

#include <map>
#include <memory>
#include <typeindex>
#include <utility>

namespace quench {

// Section types are default constructible, copyable and comparable. Copies are deep.
class ObjectiveSections {
 public:
  ObjectiveSections() = default;
  ObjectiveSections(const ObjectiveSections& other) {
    for (const auto& [type, section] : other.sections_) sections_.emplace(type, section->copy());
  }
  ObjectiveSections(ObjectiveSections&&) noexcept = default;
  ObjectiveSections& operator=(ObjectiveSections other) noexcept {
    sections_ = std::move(other.sections_);
    return *this;
  }
  ~ObjectiveSections() = default;

  // Null: absent.
  template <class Section>
  [[nodiscard]] const Section* find() const {
    const auto found = sections_.find(typeid(Section));
    return found == sections_.end() ? nullptr : &static_cast<const Value<Section>&>(*found->second).section;
  }
  template <class Section>
  [[nodiscard]] Section* find() {
    return const_cast<Section*>(std::as_const(*this).find<Section>());
  }
  // With default values, in place of an earlier one.
  template <class Section>
  Section& emplace() {
    auto made = std::make_unique<Value<Section>>();
    Section& section = made->section;
    sections_.insert_or_assign(typeid(Section), std::move(made));
    return section;
  }
  template <class Section>
  void erase() {
    sections_.erase(typeid(Section));
  }

  friend bool operator==(const ObjectiveSections& a, const ObjectiveSections& b) {
    if (a.sections_.size() != b.sections_.size()) return false;
    for (const auto& [type, section] : a.sections_) {
      const auto other = b.sections_.find(type);
      if (other == b.sections_.end() || !section->equals(*other->second)) return false;
    }
    return true;
  }

 private:
  struct AnySection {
    virtual ~AnySection() = default;
    [[nodiscard]] virtual std::unique_ptr<AnySection> copy() const = 0;
    // `other` holds the same type.
    [[nodiscard]] virtual bool equals(const AnySection& other) const = 0;
  };
  template <class Section>
  struct Value final : AnySection {
    [[nodiscard]] std::unique_ptr<AnySection> copy() const override { return std::make_unique<Value>(*this); }
    [[nodiscard]] bool equals(const AnySection& other) const override {
      return section == static_cast<const Value&>(other).section;
    }
    Section section{};
  };

  std::map<std::type_index, std::unique_ptr<AnySection>> sections_;
};

}  // namespace quench
