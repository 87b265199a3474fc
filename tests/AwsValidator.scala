import java.net.{URI, URLDecoder}
import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.util
import java.util.Base64
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec
import javax.security.auth.callback.Callback
import javax.security.auth.login.AppConfigurationEntry

import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler
import org.apache.kafka.common.security.oauthbearer.{OAuthBearerToken, OAuthBearerValidatorCallback}

/** Stands for the side of Amazon MSK: a token is a URL of one action, signed by Signature Version 4. */
class AwsValidator extends AuthenticateCallbackHandler {
  private val Array(accessKey, secretKey, region) = System.getProperty("batchledger.test.aws").split(":")

  override def configure(c: util.Map[String, _], m: String, e: util.List[AppConfigurationEntry]): Unit = ()
  override def close(): Unit = ()

  override def handle(callbacks: Array[Callback]): Unit = callbacks.foreach {
    case asked: OAuthBearerValidatorCallback =>
      try asked.token(check(asked.tokenValue))
      catch { case wrong: IllegalArgumentException => asked.error(wrong.getMessage, null, null) }
    case _ => ()
  }

  private def check(text: String): OAuthBearerToken = {
    val url = URI.create(new String(Base64.getUrlDecoder.decode(text), UTF_8))
    val pairs = url.getRawQuery.split("&").filterNot(_.startsWith("User-Agent="))
    val query = pairs.map(_.split("=", 2)).map(each => each(0) -> each(1)).toMap
    def plain(name: String) = URLDecoder.decode(query.getOrElse(name, ""), UTF_8)
    require(url.getHost == s"kafka.$region.amazonaws.com", "the token is for another region")
    require(plain("Action") == "kafka-cluster:Connect", "the token is for another action")
    val moment = plain("X-Amz-Date")
    val scope = s"${moment.take(8)}/$region/kafka-cluster/aws4_request"
    require(plain("X-Amz-Credential") == s"$accessKey/$scope", "the token is from another identity")
    val signed = pairs.filterNot(_.startsWith("X-Amz-Signature=")).sorted.mkString("&")
    val request = s"GET\n/\n$signed\nhost:${url.getHost}\n\nhost\n${hex(digest(""))}"
    val start = s"AWS4$secretKey".getBytes(UTF_8)
    val key = Seq(moment.take(8), region, "kafka-cluster", "aws4_request").foldLeft(start)(mac)
    val signature = hex(mac(key, s"AWS4-HMAC-SHA256\n$moment\n$scope\n${hex(digest(request))}"))
    require(signature == plain("X-Amz-Signature"), "the signature of the token is wrong")
    val end = System.currentTimeMillis + plain("X-Amz-Expires").toLong * 1000
    new OAuthBearerToken {
      override def value: String = text
      override def scope: util.Set[String] = util.Set.of()
      override def lifetimeMs: Long = end
      override def principalName: String = accessKey
      override def startTimeMs: java.lang.Long = System.currentTimeMillis
    }
  }

  private def digest(text: String) = MessageDigest.getInstance("SHA-256").digest(text.getBytes(UTF_8))
  private def hex(bytes: Array[Byte]) = bytes.map(each => f"$each%02x").mkString
  private def mac(key: Array[Byte], text: String) = {
    val made = Mac.getInstance("HmacSHA256")
    made.init(new SecretKeySpec(key, "HmacSHA256"))
    made.doFinal(text.getBytes(UTF_8))
  }
}
