// An OpenID provider with the device authorization grant, on a port of its own: node-oidc-provider, and people who say
// yes or no without a browser. It prints its issuer, and ends with its standard input.
//
// POST /answer: `code` is what the command prints, `person` one of those below, or nobody to say no.

import { createServer } from "node:http";
import Provider from "oidc-provider";

const people = {
  ann: { email: "ann@example.com", email_verified: true, groups: ["web", "ml-team"] },
  eve: { email: "eve@example.com", email_verified: true, groups: ["guests"] },
};
const scope = "openid email groups";

const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: "wasmrun",
    token_endpoint_auth_method: "none",
    grant_types: ["urn:ietf:params:oauth:grant-type:device_code"],
    redirect_uris: [],
    response_types: [],
  }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  conformIdTokenClaims: false,
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: false } },
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId, ...people[accountId] }) }),
});

async function answer(code, person) {
  const device = await provider.DeviceCode.findByUserCode(code.replaceAll("-", ""));
  if (person) {
    const grant = new provider.Grant({ accountId: person, clientId: "wasmrun" });
    grant.addOIDCScope(scope);
    const { nonce } = device.params;
    Object.assign(device, { accountId: person, grantId: await grant.save(), scope, nonce });
  } else {
    Object.assign(device, { error: "access_denied", errorDescription: "the person said no" });
  }
  await device.save();
}

server.on("request", async (request, response) => {
  const url = new URL(request.url, issuer);
  if (url.pathname !== "/answer") {
    return provider.callback()(request, response);
  }
  try {
    await answer(url.searchParams.get("code"), url.searchParams.get("person"));
    response.end("done");
  } catch (error) {
    response.writeHead(500).end(String(error));
  }
});

console.log(issuer);
process.stdin.resume().on("end", () => process.exit(0));
