// Addresses, credentials, region and endpoint of S3-compatible storage.

#include "data/s3/s3_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/check.h"
#include "data/s3/s3_url.h"
#include "data/s3/s3_xml.h"
#include "tests/s3_server/s3_environment.h"
#include "tests/testing.h"

namespace quench::s3 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::S3Environment;
using testing::TempDir;
using testing::write_file;

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    return error.what();
  }
  return "(accepted)";
}

TEST(S3Url, HasABucketAndAPrefix) {
  const S3Url url = parse_s3_url("s3://models/runs/demo/");
  EXPECT_EQ(url.bucket, "models");
  EXPECT_EQ(url.key("step-1/a"), "runs/demo/step-1/a");
  EXPECT_EQ(url.text("step-1"), "s3://models/runs/demo/step-1");
  EXPECT_EQ(parse_s3_url("s3://models").key("a"), "a");
  EXPECT_EQ(parse_s3_url("s3://models/").text(), "s3://models");
}

TEST(S3Url, IsRefusedWithTheFault) {
  for (const char* text : {"/disk/checkpoints", "http://models/x", "s3:/models", "s3://", "s3://a", "s3:///x",
                           "s3://-models", "s3://mod els/x", "s3://models/a//b", "s3://models/../x", "s3://models/a?b"})
    EXPECT_THAT(refusal([&] { (void)parse_s3_url(text); }), HasSubstr("s3://BUCKET/PREFIX")) << text;
  EXPECT_THAT(refusal([] { (void)parse_s3_url("s3://key:hidden@models/x"); }),
              AllOf(HasSubstr("access key"), Not(HasSubstr("hidden"))));
}

TEST(S3Settings, VariablesComeBeforeFiles) {
  const S3Environment environment;
  const TempDir folder;
  write_file(folder / "credentials", "[default]\naws_access_key_id = FILEID\naws_secret_access_key = file-secret\n");
  environment.set("AWS_SHARED_CREDENTIALS_FILE", (folder / "credentials").string());
  environment.set("AWS_ACCESS_KEY_ID", "ID");
  environment.set("AWS_SECRET_ACCESS_KEY", "secret");
  environment.set("AWS_SESSION_TOKEN", "session");
  environment.set("AWS_REGION", "eu-west-3");
  environment.set("AWS_ENDPOINT_URL", "http://storage:9000/");
  const S3Settings settings = S3Settings::from_environment();
  EXPECT_EQ(settings.credentials.key_id(), "ID");
  EXPECT_EQ(settings.credentials.session(), "session");
  EXPECT_EQ(settings.region, "eu-west-3");
  EXPECT_EQ(settings.bucket_url("models"), "http://storage:9000/models");
  environment.set("AWS_ENDPOINT_URL_S3", "https://s3.storage");
  EXPECT_EQ(S3Settings::from_environment().endpoint, "https://s3.storage");
}

TEST(S3Settings, ProfilesAreReadFromBothFiles) {
  const S3Environment environment;
  const TempDir folder;
  write_file(folder / "credentials",
             "# keys\n[default]\naws_access_key_id=A\naws_secret_access_key=a\n\n[work]\n"
             "aws_access_key_id = B\naws_secret_access_key = b/+=\naws_session_token = t\n");
  write_file(folder / "config",
             "[default]\nregion = eu-north-1\n[profile work]\nregion=us-west-2\nendpoint_url = https://minio.work\n"
             "s3 =\n  addressing_style = path\n[profile other]\naws_access_key_id = C\naws_secret_access_key = c\n");
  environment.set("AWS_SHARED_CREDENTIALS_FILE", (folder / "credentials").string());
  environment.set("AWS_CONFIG_FILE", (folder / "config").string());
  const S3Settings usual = S3Settings::from_environment();
  EXPECT_EQ(usual.credentials.key_id(), "A");
  EXPECT_EQ(usual.bucket_url("models"), "https://models.s3.eu-north-1.amazonaws.com");
  EXPECT_EQ(usual.bucket_url("my.models"), "https://s3.eu-north-1.amazonaws.com/my.models");
  environment.set("AWS_PROFILE", "work");
  const S3Settings work = S3Settings::from_environment();
  EXPECT_EQ(work.credentials.secret(), "b/+=");
  EXPECT_EQ(work.credentials.session(), "t");
  EXPECT_EQ(work.region, "us-west-2");
  EXPECT_EQ(work.endpoint, "https://minio.work");
  environment.set("AWS_PROFILE", "other");
  EXPECT_EQ(S3Settings::from_environment().credentials.key_id(), "C");
}

TEST(S3Settings, MissingOrHalfCredentialsAreNamed) {
  const S3Environment environment;
  const auto read = [] { (void)S3Settings::from_environment(); };
  EXPECT_THAT(refusal(read), HasSubstr("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
  environment.set("AWS_ACCESS_KEY_ID", "ID");
  EXPECT_THAT(refusal(read), HasSubstr("AWS_SECRET_ACCESS_KEY is not"));
  environment.set("AWS_SECRET_ACCESS_KEY", "two words");
  EXPECT_THAT(refusal(read), AllOf(HasSubstr("blanks"), Not(HasSubstr("two words"))));
  environment.set("AWS_SECRET_ACCESS_KEY", "secret");
  environment.set("AWS_ENDPOINT_URL_S3", "storage:9000");
  EXPECT_THAT(refusal(read), HasSubstr("AWS_ENDPOINT_URL_S3 is no URL"));
  environment.unset("AWS_ACCESS_KEY_ID");
  environment.unset("AWS_SECRET_ACCESS_KEY");
  environment.set("AWS_PROFILE", "absent");
  EXPECT_THAT(refusal(read), HasSubstr("AWS_PROFILE is absent"));
  const TempDir folder;
  write_file(folder / "config", "[profile absent]\nsso_session = work\n");
  environment.set("AWS_CONFIG_FILE", (folder / "config").string());
  EXPECT_THAT(refusal(read), AllOf(HasSubstr("sso_session"), HasSubstr("export-credentials")));
}

TEST(S3Credentials, AreRemovedFromTexts) {
  const S3Credentials key("ID4711", "secret", "session", "the test");
  EXPECT_EQ(key.redact("secret of ID4711 in session"), "(key) of (key) in (key)");
}

TEST(S3Xml, ElementsAreReadByName) {
  const std::string xml =
      "<List><KeyCount>2</KeyCount><Contents><Key>a&amp;b&#x2B;</Key></Contents>"
      "<Contents><Key>c</Key></Contents><Empty/></List>";
  EXPECT_EQ(xml_text(xml, "Key"), "a&b+");
  EXPECT_EQ(xml_text(xml, "Empty"), "");
  EXPECT_EQ(xml_text(xml, "Absent"), "");
  std::string all;
  xml_each(xml, "Contents", [&](std::string_view entry) { all += xml_text(entry, "Key") + ";"; });
  EXPECT_EQ(all, "a&b+;c;");
  EXPECT_EQ(xml_escaped("\"a\"&<"), "&quot;a&quot;&amp;&lt;");
}

TEST(S3Xml, CutAndHostileTextsAreNoElements) {
  for (const char* text : {"<Key>a", "<Key", "<Key></Kez>", "</Key><Key/", "<Keys>a</Keys>", "&#x;&#99999999;", "<"})
    EXPECT_EQ(xml_text(text, "Key"), "") << text;
}

}  // namespace
}  // namespace quench::s3
